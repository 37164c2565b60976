"""Does the installed SGLang know the model? By the names in its source: nothing is imported."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sglangctl.diagnosis.finding import WARN, Finding
from sglangctl.preflight import configs
from sglangctl.preflight.catalog import finding
from sglangctl.preflight.model import Looked
from sglangctl.sgl_kernel import venv as venvs
from sglangctl.util import lazy_re
from sglangctl.util.errors import Unusable
from sglangctl.util.plain_files import text_of
from sglangctl.util.terminal import escaped

MODELS = "sglang/srt/models"
NAME = lazy_re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,120}")


def look(looked: Iterable[Looked], venv: str) -> Iterator[Finding]:
    """Nothing for an environment without SGLang's models (a stand-in)."""
    try:
        places = venvs.load(Path(venv)).path
    except (Unusable, OSError):
        return
    models = [(str(one.target.folder), configs.of(one.model)) for one in looked]
    yield from judge(models, source_of(places), venv)


def judge(
    models: Sequence[tuple[str, dict[str, Any]]], source: str, venv: str
) -> Iterator[Finding]:
    """Pure. `models`: folder and config.json; `source`: of all model files, empty for none."""
    for folder, config in models:
        given = config.get("architectures")
        named = given[0] if isinstance(given, list) and given else None
        if not source or not isinstance(named, str) or not NAME.fullmatch(named):
            continue
        if not re.search(rf"\b{named}\b", source):
            yield finding(
                "model-architecture",
                WARN,
                escaped(
                    f"SGLang in {venv} has no model {named} ({folder}/config.json): it takes the "
                    "one of transformers, which is slower, or refuses"
                ),
                "take a `version` that has it",
            )


def source_of(places: Iterable[Path]) -> str:
    """The text of the model files of the first folder that has some."""
    for place in places:
        files = sorted((place / MODELS).rglob("*.py"))
        if files:
            return "\n".join(map(text_of, files))
    return ""
