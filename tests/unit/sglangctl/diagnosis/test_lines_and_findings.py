"""What a line means in its context, and a finding as a document."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sglangctl.diagnosis.classify import FOLDER, Context, classify
from sglangctl.diagnosis.finding import Finding
from sglangctl.diagnosis.readiness import Expected, Facts, decide
from sglangctl.diagnosis.signatures import SIGNATURES
from sglangctl.diagnosis.signatures.base import COMPILER

MISSING = "FileNotFoundError: No such file or directory: '/models/m/a.safetensors'"


@pytest.mark.parametrize(
    ("path", "unreadable"), [("/models/m/a.safetensors", True), ("/models/other", False)]
)
def test_only_the_file_that_the_line_names_is_unreadable(path: str, unreadable: bool) -> None:
    found = classify(MISSING, Context(unreadable={path: "mode 0600"}), exception=True)
    assert found is not None
    assert (found.cause == "weights-unreadable") is unreadable
    assert found.note == ("mode 0600" if unreadable else "")


def test_a_folder_that_cannot_be_made_is_a_reason_not_a_guess() -> None:
    line = "PermissionError: [Errno 13] Permission denied: '/var/cache/x'"
    found = classify(line, Context(doing=frozenset({FOLDER})), exception=True)
    assert found is not None and (found.cause, found.vague) == ("cache-not-writable", False)


def test_a_compilers_own_error_is_a_hint_and_no_verdict() -> None:
    compilers = [one for one in SIGNATURES if one.seen == COMPILER and one.cause == "jit-toolchain"]
    assert compilers and all(one.hint for one in compilers)


def test_a_finding_survives_its_document() -> None:
    found = Finding("disk-full", "fail", "seen", "fix", "needed", "source")
    document = found.to_json()
    assert document["id"] == "disk-full" and document["source"] == "source"
    assert Finding.from_json({**document, "newer": 1}) == found


@pytest.mark.parametrize(
    ("health", "error", "detail"),
    [(503, None, "answers 503"), (None, "TimeoutError", "TimeoutError"), (None, None, "not asked")],
)
def test_what_health_said_is_in_the_check(
    health: int | None, error: str | None, detail: str
) -> None:
    expected = Expected(
        port=8000, served_name="m", ranks=1, speculative=False, algorithm="", min_accept_length=1.2
    )
    facts = replace(Facts(main_alive=True), health=health, health_error=error)
    (check,) = [one for one in decide(expected, facts).checks if one.name == "health"]
    assert check.passed is not True and detail in check.detail
