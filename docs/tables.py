"""The tables in docs/ that are made from the code, each between two markers of its page.

python -m docs.tables            # names the pages that are stale; exit status 1 if there is one
python -m docs.tables --write    # writes them
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from docs import effects
from roles.inventory import environment, nccl, render, schema
from roles.inventory.document import parse
from roles.inventory.load import build
from roles.monitoring.files import rules
from sglangctl.diagnosis.causes import CAUSES, Cause
from sglangctl.diagnosis.outcomes import OUTCOMES, PHASES
from sglangctl.diagnosis.overrides import DOES_NOT_HELP, HELPS
from sglangctl.diagnosis.signatures import SIGNATURES
from sglangctl.preflight.catalog import CHECKS

DOCS = Path(__file__).resolve().parent
MARKED = re.compile(
    r"(?P<begin><!-- table (?P<name>[a-z-]+): python -m docs\.tables --write -->\n)"
    r"(?P<table>.*?)(?P<end><!-- end of table (?P=name) -->)",
    re.DOTALL,
)


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A Markdown table; a cell is Markdown of one line."""
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(map(cell, line))} |\n" for line in lines)


def cell(text: str) -> str:
    """Text that cannot end a table's cell."""
    return text.replace("|", "\\|").replace("\n", " ")


def code(value: Any) -> str:
    """A value as it is written in YAML (flow style), as code."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"`{text}`" if text else '`""`'


OWN_TABLES = ("kernel", "readiness", "readiness.limits")
"""Mappings of an engine whose keys have a table of their own."""


def inventory_keys(part: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, ...]]:
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
            default = item.get("x-default", "")
        example = "" if nested else code(item["examples"][0])
        yield f"`{path}`", default, item["x-unit"], item["description"], example
        if nested and path not in OWN_TABLES:
            yield from inventory_keys(item, f"{path}.")


def keys_of(definition: str, *within: str) -> str:
    """The table of the keys in one definition of the schema, or in a mapping within it."""
    part = schema.definition(definition)
    for key in within:
        part = part["properties"][key]
    head = ("Key", "Default", "Unit", "Meaning", "Example")
    return table(head, inventory_keys(part, "".join(f"{key}." for key in within)))


def base_variables() -> str:
    """The table of the variables of every engine."""
    engine = build(parse(_ONE_ENGINE, "NAME"), DOCS, {}).hosts[0].spec
    assert engine is not None
    variables = render.environment(engine.engines[0], "VENV")
    rows = [
        (
            f"`{name}`",
            code(value.replace("/sglang/name", "/sglang/NAME")),
            f"fixed: {environment.OURS[name]}" if name in environment.OURS else "`environment`",
        )
        for name, value in sorted(variables.items())
    ]
    return table(("Variable", "Value", "Changed by"), rows)


_ONE_ENGINE = "hosts: {h: {engines: {name: {model: {path: /m}}}}}"


def alerts() -> str:
    """The table of the alerts in templates/monitoring/rules.yml."""
    groups = yaml.safe_load(rules().content)["groups"]
    rows = []
    for rule in (rule for group in groups for rule in group["rules"] if "alert" in rule):
        texts = [
            re.sub(
                r"\{\{ [$](?:labels[.])?(\w+)[^}]*\}\}",
                lambda found: "N" if found[1] == "value" else found[1].upper(),
                rule["annotations"][key],
            )
            for key in ("summary", "next_step")
        ]
        rows.append(
            (f"`{rule['alert']}`", rule["labels"]["severity"], rule.get("for", "at once"), *texts)
        )
    return table(("Alert", "Severity", "After", "It says", "Next step"), rows)


def nccl_profiles() -> str:
    """The table of NCCL profiles."""
    rows = []
    for name, profile in nccl.PROFILES.items():
        values = [f"`{variable}={value}`" for variable, value in profile.environment.items()]
        values += [f"flag `{flag}`" for flag in profile.flags]
        sets = "<br>".join(values) or "nothing"
        rows.append((f"`{name}`", sets, profile.reason, profile.source))
    return table(("Profile", "Sets", "Reason", "Source"), rows)


def evidence_of(cause: Cause) -> str:
    """Where a cause's evidence was seen."""
    seen = {
        part.strip()
        for signature in SIGNATURES
        if signature.cause == cause.name
        for part in re.split(r"[;,] (?=SGLang)", signature.seen)
    }
    return "; ".join([*filter(None, [cause.rule]), *sorted(seen)])


def causes() -> str:
    """The table of the closed list of causes."""
    rows = [
        (f"`{cause.name}`", cause.sentence, cause.next_step, evidence_of(cause))
        for cause in CAUSES.values()
    ]
    return table(("Cause", "What it means", "Next step", "Evidence, or where it was seen"), rows)


def meanings_table(title: str, meanings: dict[str, str]) -> str:
    """A table of names and what each of them means."""
    return table((title, "Meaning"), ((f"`{name}`", text) for name, text in meanings.items()))


def checks() -> str:
    """The table of what is checked before anything is stopped."""
    rows = [
        (f"`{id}`", f"`{check.gate}`", check.looks_at, check.source) for id, check in CHECKS.items()
    ]
    return table(("Finding", "Gate", "Condition", "Source"), rows)


def layers() -> str:
    """The rooms of sglangctl as a picture, from their table in docs/architecture.md."""
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    section = page.partition("## Rooms of sglangctl\n")[2].partition("\n## ")[0]
    storeys: dict[int, list[str]] = {}
    for layer, room in re.findall(r"^\| (\d+) \| `([\w.]+)` \|", section, re.MULTILINE):
        storeys.setdefault(int(layer), []).append(room)
    lines = ["   ".join(storeys[layer]) for layer in sorted(storeys, reverse=True)]
    width = max(map(len, lines), default=0)
    picture = "\n".join(line.center(width).rstrip() for line in lines)
    return f"```\n{picture}\n```\n"


def what_restarts_what() -> str:
    """What a change of the inventory and a hand edit do to what runs, from the code that decides."""
    found = effects.by_effect()
    every = [key for keys in found.values() for key in keys]
    rows = [("inventory", ", ".join(listed(keys, every)), effect) for effect, keys in found.items()]
    rows += [("host", what, effects.by_hand(what)) for what in effects.BY_HAND]
    return table(("On", "What changed", "What a deploy does"), rows)


def listed(keys: list[str], every: list[str]) -> list[str]:
    """Keys as code; a mapping of which most are among them in one."""
    shown: list[str] = []
    for key in keys:
        mapping = key.rpartition(".")[0]
        alike = [one for one in every if one.rpartition(".")[0] == mapping]
        others = [one for one in alike if one not in keys]
        text = code(key)
        if mapping and len(alike) - len(others) > 1 and len(others) <= 1:
            text = code(f"{mapping}.*") + "".join(f" (but {code(one)})" for one in others)
        if text not in shown:
            shown.append(text)
    return shown


def overrides() -> str:
    """Which causes a fallback can help."""
    rows = [(f"`{cause}`", "yes", why) for cause, why in HELPS.items()]
    rows += [(f"`{cause}`", "no", why) for cause, why in DOES_NOT_HELP.items()]
    return table(("Cause", "Fallbacks are tried", "Why"), rows)


TABLES: dict[str, Callable[[], str]] = {
    "alerts": alerts,
    "host-keys": lambda: keys_of("host"),
    "engine-keys": lambda: keys_of("engine"),
    "kernel-keys": lambda: keys_of("engine", "kernel"),
    "readiness-keys": lambda: keys_of("engine", "readiness"),
    "limits-keys": lambda: keys_of("engine", "readiness", "limits"),
    "base-variables": base_variables,
    "nccl-profiles": nccl_profiles,
    "phases": lambda: meanings_table("Phase", PHASES),
    "outcomes": lambda: meanings_table("Outcome", OUTCOMES),
    "causes": causes,
    "checks": checks,
    "layers": layers,
    "effects": what_restarts_what,
    "overrides": overrides,
}


def updated(text: str) -> str:
    """A page's text with current tables. ValueError: it has a marker of a table that is none."""

    def current(found: re.Match[str]) -> str:
        if found["name"] not in TABLES:
            raise ValueError(f"there is no table {found['name']!r}: {', '.join(TABLES)}")
        return f"{found['begin']}{TABLES[found['name']]()}{found['end']}"

    return MARKED.sub(current, text)


def stale(folder: Path = DOCS) -> dict[Path, str]:
    """The pages that are not current, each with the text that it should have."""
    pages = {page: page.read_text(encoding="utf-8") for page in sorted(folder.glob("*.md"))}
    wanted = {page: updated(text) for page, text in pages.items()}
    return {page: text for page, text in wanted.items() if text != pages[page]}


def main(arguments: list[str]) -> int:
    """Check the pages or write them; returns the exit status."""
    if arguments not in ([], ["--write"]):
        print("usage: python -m docs.tables [--write]", file=sys.stderr)
        return 2
    pages = stale()
    for page, text in pages.items():
        if arguments:
            page.write_text(text, encoding="utf-8")
            print(f"{page.name}: written")
        else:
            print(f"{page.name}: stale; run: python -m docs.tables --write", file=sys.stderr)
    return 1 if pages and not arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
