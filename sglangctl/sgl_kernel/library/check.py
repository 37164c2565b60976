"""Does the kernel work in this environment? torch, then sgl_kernel, then one real operation.

An import does not find a missing cubin: CUDA looks for it at the first launch. So one small
kernel of common_ops (silu_and_mul, in every version) is run and its numbers are compared.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sglangctl.proc import command
from sglangctl.sgl_kernel.library.judging import Inspection
from sglangctl.sgl_kernel.library.translations import (
    ANEW,
    FAILED,
    OK,
    SIGNALS,
    TRANSLATIONS,
    UNKNOWN,
)
from sglangctl.sgl_kernel.venv import Torch, Venv
from sglangctl.systemd import confined
from sglangctl.util import os_errors, site_reports
from sglangctl.util.values import json_object

TIMEOUT_S = 300.0
"""Importing torch from a cold disk takes a minute; the operation under a second."""

# Runs in the engine's environment. Its answers have standard output for themselves, because torch
# and the libraries under it print as they please.
PROGRAM = """
import json, os, sys
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
def tell(**fields):
    out.write(json.dumps(fields) + "\\n")
    out.flush()
tell(stage="torch")
import torch
tell(stage="sgl_kernel", torch=torch.__version__, cuda=torch.version.cuda)
import sgl_kernel
tell(stage="gpu", kernel=getattr(sgl_kernel, "__version__", None))
if not torch.cuda.is_available():
    tell(stage="no-gpu")
    sys.exit(0)
tell(stage="op", gpu=torch.cuda.get_device_name(), sm="%d%d" % torch.cuda.get_device_capability())
x = torch.linspace(-4, 4, 1024, device="cuda").reshape(4, 256).to(torch.float16)
got = sgl_kernel.silu_and_mul(x)
torch.cuda.synchronize()
a, b = x.float().chunk(2, dim=-1)
error = float((got.float() - torch.nn.functional.silu(a) * b).abs().max())
tell(stage="done", error=error)
"""


@dataclass(frozen=True)
class Check:
    """The document of `sglangctl kernel check --json`."""

    outcome: str
    """`ok` (the operation ran and its numbers are right), `failed`, `unknown` (it was not run)."""
    reason: str
    cause: str | None = None
    """From the list of causes of a failed start: kernel-broken, no-kernel-image, ..."""
    next_step: str | None = None
    stage: str | None = None
    """Where it ended: torch, sgl_kernel, gpu, op, done."""
    torch: str | None = None
    kernel: str | None = None
    gpu: str | None = None
    sm: str | None = None
    """The GPU's architecture, `120`."""
    returncode: int | None = None
    evidence: tuple[str, ...] = ()
    v: int = 1

    @property
    def exit_status(self) -> int:
        return {OK: 0, FAILED: 1}.get(self.outcome, 2)


TOLERANCE = 0.05
"""float16 at values up to 16: one unit in the last place is 0.0156."""


def check(
    venv: Venv,
    inspection: Inspection | None = None,
    environment: Mapping[str, str] | None = None,
    user: str | None = None,
) -> Check:
    """Run PROGRAM in `venv`; `inspection` lets a failure name both versions.

    + user: as whom (root's, by name), in the strict sandbox; None: as whoever calls. KeyError for
      an unknown one
    """
    if user is not None and os.geteuid() == 0:
        # CUDA makes nvidia-uvm's device node through a setuid helper, which a sandbox forbids.
        command.run(["/usr/bin/nvidia-modprobe", "-u", "-c=0"])
        kept = confined.kept(os.environ, confined.KEPT)
    else:
        kept = dict(os.environ)
    argv = [str(venv.python), "-I", "-B", "-X", "faulthandler", "-c", PROGRAM]
    try:
        ended = confined.run(
            argv, user, limit_s=TIMEOUT_S, environment={**kept, **(environment or {})}
        )
    except OSError as error:
        reason = f"{venv.python} does not run: {os_errors.describe(error)}"
        return Check(FAILED, reason, "kernel-broken", ANEW)
    return judge(
        ended.returncode,
        ended.stdout.decode("utf-8", "backslashreplace"),
        ended.stderr.decode("utf-8", "backslashreplace"),
        venv.torch(),
        inspection,
    )


def judge(
    returncode: int | None,
    answers: str,
    stderr: str,
    torch: Torch | None = None,
    inspection: Inspection | None = None,
) -> Check:
    """What the program's answers, its exit and its error text mean. Pure.

    + returncode: as subprocess has it; None: it was ended at TIMEOUT_S
    """
    said: dict[str, object] = {}
    for line in answers.splitlines():
        said.update(json_object(line))
    stage = str(said.get("stage", "start"))
    facts = Check(
        OK,
        "",
        stage=stage,
        torch=_text(said.get("torch")) or (torch.version if torch else None),
        kernel=_text(said.get("kernel")) or (inspection.version if inspection else None),
        gpu=_text(said.get("gpu")),
        sm=_text(said.get("sm")),
        returncode=returncode,
        evidence=_telling(stderr),
    )
    if returncode == 0 and stage == "done":
        error = said.get("error")
        if isinstance(error, float) and error < TOLERANCE:
            return _with(facts, OK, f"silu_and_mul ran on {facts.gpu} and its numbers are right")
        sentence = f"silu_and_mul computes wrong numbers on {facts.gpu} (off by {error})"
        return _with(facts, FAILED, sentence, "kernel-broken", ANEW)
    if returncode == 0 and stage == "no-gpu":
        return _with(
            facts,
            UNKNOWN,
            "torch and sgl_kernel load; no operation was run: torch sees no GPU",
            next_step="nvidia-smi; on a host with a GPU this is a dead driver",
        )
    names = {
        "torch": facts.torch or "(unknown)",
        "cuda": _text(said.get("cuda")) or (torch.cuda if torch else None) or "(none)",
        "built": _built_for(inspection),
        "gpu": facts.gpu or "the GPU",
        "sm": _text(said.get("sm")) or "?",
    }
    # The last lines come from the failure itself; what is said before may be a mere warning.
    lines = [line for line in reversed(stderr.splitlines()) if line.strip()]
    for row in TRANSLATIONS:
        for line in lines:
            match = re.search(row.pattern, line)
            if match:
                found = {key: value or "unnamed" for key, value in match.groupdict().items()}
                sentence = row.sentence.format_map({**names, **found})
                return _with(facts, row.outcome, sentence, row.cause, row.next_step)
    if returncode is None:
        # Ended by us: that says nothing of memory. It may be the kernel, or the host.
        sentence = f"{STAGES.get(stage, stage)}: no answer within {TIMEOUT_S:g} s, so it was ended"
        return _with(facts, FAILED, sentence, "unknown", SLOW)
    if returncode < 0:
        try:
            number = signal.Signals(-returncode)
        except ValueError:
            number = signal.SIGSEGV
        cause, sentence, step = SIGNALS.get(
            number, ("kernel-broken", f"it died of {number.name}", ANEW)
        )
        return _with(facts, FAILED, f"{STAGES.get(stage, stage)}: {sentence}", cause, step)
    last = lines[0].strip() if lines else f"exit status {returncode}, without output"
    sentence = f"{STAGES.get(stage, stage)}: {last[:300]}"
    return _with(facts, FAILED, sentence, "unknown", "see the evidence")


SLOW = "check the host's disks and load (uptime, iostat), then check once more"
STAGES = {
    "start": "Python did not start",
    "torch": "importing torch failed",
    "sgl_kernel": "importing sgl_kernel failed",
    "gpu": "looking for a GPU failed",
    "op": "silu_and_mul failed",
}


def _with(
    facts: Check, outcome: str, reason: str, cause: str | None = None, next_step: str | None = None
) -> Check:
    return replace(facts, outcome=outcome, reason=reason, cause=cause, next_step=next_step)


def _built_for(inspection: Inspection | None) -> str:
    wanted = inspection.built_for if inspection else None
    return f"torch {wanted}" if wanted else "another torch"


def _text(value: object) -> str | None:
    return str(value) if value else None


def _telling(stderr: str) -> tuple[str, ...]:
    """The lines worth keeping: errors first, at most 12, each cut to 400 characters."""
    own = site_reports.without(stderr.splitlines())
    lines: Sequence[str] = [line.rstrip() for line in own if line.strip()]
    errors = [line for line in lines if re.search(r"Error|error|cannot|CRITICAL|fault", line)]
    return tuple(line[:400] for line in (errors or lines)[-12:])
