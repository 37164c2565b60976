"""Lines of Python by room, in docs/evidence/rooms.json beside those of before the rooms.

python3 -m benchmarks.rooms [--evidence] [COMMIT ...]: counts HEAD, and what the commits that are named
added and took (none: those of the last time).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

from benchmarks.evidence import ROOT, asked

RESULT = ROOT / "docs/evidence/rooms.json"
TOPS = ("sglangctl", "roles", "tests")


def git(*arguments: str) -> str:
    """What git says of this checkout."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True, text=True)
    return done.stdout


def counted(commit: str) -> dict[str, int]:
    """Newlines of all *.py that git has at a commit, by room; tests are one."""
    rooms: Counter[str] = Counter()
    for line in git("grep", "-c", "", commit, "--", *(f"{top}/**.py" for top in TOPS)).splitlines():
        _, path, lines = line.rsplit(":", 2)
        top, *rest = Path(path).parts
        room = top if top == "tests" or len(rest) == 1 else f"{top}/{rest[0]}"
        rooms[room] += int(lines)
        rooms[f"total {top}"] += int(lines)
    return dict(sorted(rooms.items(), key=lambda one: (one[0].startswith("total"), one[0])))


def net(commits: list[str]) -> dict[str, int]:
    """Lines of Python that the commits added, less those that they took."""
    found = dict.fromkeys(TOPS, 0)
    for commit in commits:
        for top in TOPS:
            shown = git("show", "--format=", "--numstat", commit, "--", f"{top}/**.py")
            for added, taken, *_ in map(str.split, shown.splitlines()):
                found[top] += int(added) - int(taken)
    return found


def main() -> None:
    """Count, print and keep."""
    arguments = sys.argv[1:]
    wanted = asked(arguments)
    document = json.loads(RESULT.read_text(encoding="utf-8"))
    head = git("rev-parse", "HEAD").strip()
    commits = [git("rev-parse", one).strip() for one in arguments]
    document |= {"after": counted(head), "commit_after": head}
    if commits:
        document["of_making_fewer"] = {
            **net(commits),
            "commits": commits,
            "how": "net lines of Python of the commits that made them fewer, with nothing lost that "
            "a user sees",
        }
    text = json.dumps(document, indent=1)
    print(text)
    if wanted:
        RESULT.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
