"""sglang-init FOLDER: a folder from which pyinfra deploys with the installed package.

Writes inventory.py, config.py, deploys/ and inventory/ with examples and the schema. Nothing that
is there is overwritten. Exit status: 0 written, 1 not.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from roles.inventory.shipped import EXAMPLES, SCHEMA, SHIPPED

NEXT = """\
{folder} is ready. Next:
  cd {folder}
  cp inventory/{example} inventory/hosts.yml    # and put your host and model path in
  pyinfra inventory.py deploys/sglang.py --dry --diff"""


def main(given: Sequence[str] | None = None) -> int:
    """Write the folder that is named; returns the exit status."""
    arguments = sys.argv[1:] if given is None else list(given)
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(__doc__, file=sys.stdout if arguments[:1] in (["-h"], ["--help"]) else sys.stderr)
        return 0 if arguments[:1] in (["-h"], ["--help"]) else 1
    folder = Path(arguments[0])
    try:
        write(folder)
    except OSError as error:
        print(f"sglang-init: nothing was overwritten: {reason(error)}", file=sys.stderr)
        return 1
    print(NEXT.format(folder=folder, example=EXAMPLES[0]))
    return 0


def write(folder: Path) -> None:
    """Write the project's files; FileExistsError before the first one where one is there."""
    content = {folder / path: (SHIPPED / path).read_bytes() for path in paths()}
    for path in content:
        if path.exists():
            raise FileExistsError(None, "is already there, name another folder", str(path))
    for path, data in content.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "xb") as file:
            file.write(data)


def paths() -> list[Path]:
    """The files of a project, relative to its folder."""
    deploys = sorted((SHIPPED / "deploys").glob("*.py"))
    inventory = [SCHEMA, *(SCHEMA.parent / example for example in EXAMPLES)]
    top = [SHIPPED / "inventory.py", SHIPPED / "config.py"]
    return [path.relative_to(SHIPPED) for path in (*top, *deploys, *inventory)]


def reason(error: OSError) -> str:
    """A file's error as text."""
    return f"{error.filename} {error.strerror}" if error.filename else str(error)
