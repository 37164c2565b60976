"""The closed list of causes and the log lines that lead to it."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from sglangctl import cli
from sglangctl.diagnosis import signatures
from sglangctl.diagnosis.causes import CAUSES, Cause
from sglangctl.diagnosis.classify import (
    FOLDER,
    TOKENIZER,
    WEIGHTS,
    Context,
    classify,
)
from sglangctl.diagnosis.outcomes import OUTCOMES, PHASES
from sglangctl.diagnosis.signatures import SIGNATURES
from sglangctl.startup.loglines import Splitter
from sglangctl.state import journal

ROOT = Path(__file__).parents[4]
TRACES = ROOT / "tests" / "traces"

# The list in the design; nothing is added to it by accident.
CLOSED = (
    "unknown-flag unsupported-configuration unsupported-model model-not-found tokenizer-missing "
    "trust-remote-code drafter-not-found drafter-mismatch weights-missing weights-corrupt "
    "port-taken too-few-gpus cache-too-small gpu-out-of-memory host-out-of-memory nccl-error "
    "nccl-timeout rank-died rank-stopped kernel-broken no-kernel-image driver-mismatch gpu-fault "
    "cache-not-writable disk-full too-many-files shared-memory warmup-failed watchdog "
    "terminated killed jit-toolchain environment-broken backend-unsupported fabric-manager "
    "gpu-unavailable peer-access too-many-tasks weights-unreadable unknown"
)


def test_the_list_is_closed() -> None:
    assert " ".join(CAUSES) == CLOSED
    words = (
        "launching importing connecting gated loading allocating capturing binding warming serving"
    )
    assert " ".join(PHASES) == words
    words = "pending serving ready degraded unresponsive stalled deadline failed"
    assert " ".join(OUTCOMES) == words
    assert {signature.cause for signature in SIGNATURES} <= set(CAUSES)


@pytest.mark.parametrize("cause", CAUSES.values(), ids=list(CAUSES))
def test_every_cause_has_a_sentence_a_next_step_and_evidence(cause: Cause) -> None:
    assert cause.sentence and cause.next_step
    assert not cause.sentence.endswith(".")
    assert cause.rule or any(item.cause == cause.name for item in SIGNATURES)


def test_next_steps_name_commands_that_exist() -> None:
    names = {command.name for command in cli.COMMANDS}
    for cause in CAUSES.values():
        for command in re.findall(r"`sglangctl (\S+)", cause.next_step):
            assert command.strip("`") in names
        # NAME is put in by plain replacement wherever a cause is shown.
        assert "NAME" not in re.sub(r"\bNAME\b", "", cause.next_step)


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda s: f"{s.cause}: {s.needle}")
def test_each_signature_matches_its_example(signature: signatures.Signature) -> None:
    found = signatures.find(signature.example, exception=True)
    assert found is not None, "no trigger lets the line through"
    assert found.cause == signature.cause
    assert signature.matches(signature.example, exception=True)
    if signature.where == signatures.EXCEPTION:
        assert not signature.matches(signature.example, exception=False)
    assert signature.seen


def test_each_signature_is_needed() -> None:
    """The first match counts: one that never is first for its example is dead."""
    dead = [s.needle for s in SIGNATURES if signatures.find(s.example, exception=True) is not s]
    assert dead == []


HEALTHY = [
    "h200-base",
    "h200-debug-level",
    "h200-eagle3",
    "h200-seed-nccl-settings",
    "cpu-00-base",
    "cpu-08-api-key",
]


@pytest.mark.parametrize("name", HEALTHY)
def test_no_line_of_a_healthy_log_names_a_cause(name: str) -> None:
    """Until it is frozen, killed or stopped, no line may look like a cause, exception or not."""
    splitter = Splitter()
    lines = 0
    for event in journal.read(TRACES / name / "journal.jsonl"):
        if event["kind"] == "injected":
            break
        if event["kind"] != "log":
            continue
        for line in splitter.feed(event["t"], event["data"]):
            lines += 1
            for exception in (False, True):
                assert classify(line.text, Context(), exception) is None, line.text
    assert lines > 50


@pytest.mark.parametrize(
    "word",
    ["Killed", "Traceback (most recent call last):", "ERROR", "Error", "OOM", "NCCL", "failed"],
)
def test_a_bare_word_is_never_a_cause(word: str) -> None:
    assert classify(word, Context(), exception=False) is None
    assert classify(word, Context(), exception=True) is None
    assert classify(f"Ignore import error when loading x: {word}", Context()) is None


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda s: f"{s.cause}: {s.needle}")
def test_an_ignored_import_error_is_never_a_cause(signature: signatures.Signature) -> None:
    line = f"Ignore import error when loading sglang.srt.models.x: {signature.example}"
    assert classify(line, Context(), exception=True) is None


NOT_FOUND = "OSError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '{}'."


@pytest.mark.parametrize(
    ("path", "cause"),
    [
        ("/models/m", "model-not-found"),
        ("/models/d", "drafter-not-found"),
        ("/models/d-2", "model-not-found"),
        ("/models/tok", "tokenizer-missing"),
    ],
)
def test_the_same_sentence_about_another_folder(path: str, cause: str) -> None:
    context = Context(drafter_path="/models/d", tokenizer_path="/models/tok")
    found = classify(NOT_FOUND.format(path), context, exception=True)
    assert found is not None and found.cause == cause


def test_a_weight_of_another_shape_is_the_drafters_fault_only_while_it_loads() -> None:
    line = "AssertionError: Attempted to load weight (torch.Size([1])) into parameter"
    for drafter, cause in ((True, "drafter-mismatch"), (False, "weights-corrupt")):
        found = classify(line, Context(loading_drafter=drafter), exception=True)
        assert found is not None and found.cause == cause


@pytest.mark.parametrize(
    "line",
    [
        "FileNotFoundError: [Errno 2] No such file or directory: '/proc/nowhere'",
        "PermissionError: [Errno 13] Permission denied: '/home/sglang'",
        "OSError: [Errno 30] Read-only file system: '/opt/x'",
    ],
)
def test_a_folder_that_cannot_be_made(line: str) -> None:
    found = classify(line, Context(doing=frozenset({FOLDER})), exception=True)
    assert found is not None and found.cause == "cache-not-writable"
    assert classify(line, Context(), exception=True) is None


def test_a_full_disk_is_a_full_disk_also_while_a_folder_is_made() -> None:
    line = "OSError: [Errno 28] No space left on device: '/var/cache/x'"
    found = classify(line, Context(doing=frozenset({FOLDER})), exception=True)
    assert found is not None and found.cause == "disk-full"


def test_a_tokenizer_file_that_is_cut() -> None:
    line = "json.decoder.JSONDecodeError: Expecting value: line 1 column 6 (char 5)"
    found = classify(line, Context(doing=frozenset({TOKENIZER})), exception=True)
    assert found is not None and found.cause == "tokenizer-missing"
    assert classify(line, Context(), exception=True) is None


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: start (0) + length (1024) exceeds dimension size (512).",
        "KeyError: 'model.layers.0.mlp.experts.w13_weight'",
        "AssertionError",
    ],
)
def test_weights_that_do_not_fit_the_configuration(line: str) -> None:
    for drafter, cause in ((True, "drafter-mismatch"), (False, "weights-corrupt")):
        context = Context(doing=frozenset({WEIGHTS}), loading_drafter=drafter)
        found = classify(line, context, exception=True)
        assert found is not None and found.cause == cause
    assert classify(line, Context(), exception=True) is None


def test_a_damaged_file_of_the_drafter_is_a_damaged_file() -> None:
    line = "safetensors_rust.SafetensorError: Error while deserializing header: header too large"
    found = classify(line, Context(loading_drafter=True), exception=True)
    assert found is not None and found.cause == "weights-corrupt"


def test_advice_of_a_failed_capture_is_not_its_cause() -> None:
    line = "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)"
    assert classify(line, Context(), exception=True) is None


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda s: f"{s.cause}: {s.needle}")
def test_no_line_takes_a_signature_long(signature: signatures.Signature) -> None:
    """The log is the engine's own: whatever stands in a line of 4,000 characters."""
    needle, example = signature.needle, signature.example
    begun = time.process_time()
    for line in (
        example * 40,
        example[: len(example) // 2] * 60,
        needle * 400,
        ("a" * 20 + needle) * 100,
        "a" * 3900 + needle,
        needle + "a" * 3900,
        "Error: " * 400 + needle,
        "x.so" * 900 + needle,
        example[:20] + " " * 3900 + needle,
    ):
        signature.matches(line[:4000], exception=True)
    assert time.process_time() - begun < 0.25
