"""The README's tables of the inventory's keys and of the NCCL profiles, from their sources.

python -m roles.inventory.variables            # prints them
python -m roles.inventory.variables --write    # puts them between README.md's markers
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from roles.inventory import nccl, schema

README = Path(__file__).resolve().parents[2] / "README.md"
BEGIN = "<!-- variables:begin (python -m roles.inventory.variables --write) -->"
END = "<!-- variables:end -->"
HEAD = "| key | default | unit | meaning | example |\n|---|---|---|---|---|\n"


def rows(part: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """One row for each key of a mapping, and after it the rows of its own keys."""
    required = part.get("required", ())
    for key, item in part.get("properties", {}).items():
        path = f"{prefix}{key}"
        nested = "properties" in item
        if key in required or path == "model.path":
            default = "**required**"
        elif "default" in item:
            default = code(item["default"])
        else:
            default = cell(item.get("x-default", ""))
        example = "" if nested else code(item["examples"][0])
        unit = item["x-unit"]
        yield f"| `{path}` | {default} | {unit} | {cell(item['description'])} | {example} |"
        if nested:
            yield from rows(item, f"{path}.")


def tables() -> str:
    """Everything between the markers."""
    host = "\n".join(rows(schema.definition("host")))
    engine = "\n".join(rows(schema.definition("engine")))
    return (
        "**A host** (`hosts.NAME`):\n\n"
        f"{HEAD}{host}\n\n"
        "**An engine** (`hosts.NAME.engines.ENGINE`, or as a base `engines.ENGINE`):\n\n"
        f"{HEAD}{engine}\n\n"
        "**NCCL profiles** (`nccl.profile`):\n\n"
        "| profile | sets | reason | source |\n|---|---|---|---|\n" + "\n".join(profiles())
    )


def profiles() -> Iterator[str]:
    """One row for each NCCL profile."""
    for name, profile in nccl.PROFILES.items():
        values = [f"`{variable}={value}`" for variable, value in profile.environment.items()]
        values += [f"flag `{flag}`" for flag in profile.flags]
        sets = "<br>".join(values) or "nothing"
        yield f"| `{name}` | {sets} | {cell(profile.reason)} | {cell(profile.source)} |"


def code(value: Any) -> str:
    """A value as it is written in YAML (flow style), as code."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"`{cell(text)}`" if text else '`""`'


def cell(text: str) -> str:
    """Text that cannot end a table's cell."""
    return text.replace("|", "\\|").replace("\n", " ")


def updated(text: str) -> str:
    """The README's text with current tables; ValueError without the two markers."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"README.md must hold the lines {BEGIN} and {END}, in this order")
    return f"{before}{BEGIN}\n\n{tables()}\n\n{END}{after}"


def main(arguments: list[str]) -> int:
    """Print the tables, or write them into README.md; returns the exit status."""
    if arguments == ["--write"]:
        README.write_text(updated(README.read_text(encoding="utf-8")), encoding="utf-8")
    elif arguments:
        print("usage: python -m roles.inventory.variables [--write]", file=sys.stderr)
        return 2
    else:
        print(tables())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
