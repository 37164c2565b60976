"""Which kernel an engine gets: from what was seen to one step with its reason. Pure.

installed and usable -> nothing; the stock wheel; a wheel of the same key in this host's cache, or
in the fleet's; a build. A source that was tried and did not help is not tried again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from roles.inventory.model import EngineSpec, Kernel
from sglangctl.sgl_kernel import key as keys
from sglangctl.sgl_kernel.build.request import Request, cmake_flags, native
from sglangctl.sgl_kernel.library.cubins import parse_arch

Action = Literal[
    "none", "nothing", "later", "tools", "check", "stock", "cached", "fleet", "build", "fail"
]


@dataclass(frozen=True)
class Step:
    """What to do, and why. `key` and `version` belong to the sources that need them."""

    action: Action
    reason: str
    key: str | None = None
    version: str | None = None
    distribution: str | None = None


@dataclass(frozen=True)
class Situation:
    """What is known when a step is chosen."""

    kernel: Kernel
    device: str | None
    """The engine's flag `device`."""
    survey: Mapping[str, Any] | None
    """`sglangctl kernel survey`; None when it could not be had."""
    fleet: tuple[str, ...] = ()
    """Keys in the controller's cache."""
    tried: Mapping[str, str] = field(default_factory=dict)
    """Action -> why it did not help."""


def wanted(kernel: Kernel, device: str | None) -> Step | None:
    """The step where no kernel is looked after at all; None where one is."""
    if kernel.source == "none":
        return Step("none", "kernel.source is none: what pip put there is left as it is")
    if kernel.source == "auto" and device == "cpu":
        return Step("none", "the engine has the flag device: cpu and needs no kernel")
    return None


def probe_request(engines: Mapping[str, tuple[EngineSpec, str]]) -> dict[str, Any]:
    """The part `kernels` of the probe's request: engine -> (its spec, its environment's path).

    Engines whose kernel is none are left out: nothing is looked at that nobody asks for.
    """
    found = {}
    for name, (spec, venv) in engines.items():
        if wanted(spec.kernel, device_of(spec)) is None:
            arch = spec.kernel.arch
            found[name] = {"venv": venv, "sm": arch.rstrip("af") if arch else None}
    return found


def device_of(spec: EngineSpec) -> str | None:
    """The engine's flag `device`."""
    device = spec.flags.get("device")
    return str(device) if device is not None else None


def decide(now: Situation) -> Step:
    """The next step. `fail` lists every source that was tried, and why each did not help."""
    kernel, survey = now.kernel, now.survey
    outside = wanted(kernel, now.device)
    if outside:
        return outside
    if survey is None:
        return Step("fail", "the kernel could not be looked at on this host")
    sm = architecture(kernel, survey)
    if sm is None:
        problems = "; ".join(survey.get("problems") or ())
        return Step(
            "fail",
            "the GPU's architecture is not known: "
            + (problems or "no GPU answers, so the driver is missing or dead (see: nvidia-smi)")
            + "; a host without a GPU needs kernel.arch, or the flag device: cpu",
        )
    if survey.get("python") is None:
        return Step("later", f"decided after the engine's packages are installed ({expected(now)})")
    if survey.get("torch") is None:
        return Step("fail", f"{survey.get('venv')} has no torch: check install.packages")
    installed = survey.get("installed") or {}
    fault = unfit(now, installed)
    if fault is None:
        if survey.get("checked") not in ("ok", "unknown"):
            return Step("check", f"{title(installed)} is there and its check is not yet passed")
        return Step("nothing", f"{title(installed)} is usable: {installed.get('reason')}")
    if only_unseen(now, installed):
        if "tools" not in now.tried:
            return Step("tools", "cuobjdump is needed to see which GPUs a kernel is for")
        if "check" not in now.tried and survey.get("checked") is None:
            return Step("check", "there is no cuobjdump: a test operation on the GPU decides")
        return Step("fail", f"there is no cuobjdump ({now.tried['tools']}) and no operation ran")
    return _next_source(now, sm, fault)


def unfit(now: Situation, installed: Mapping[str, Any]) -> str | None:
    """Why the installed kernel will not do; None when it will."""
    kernel = now.kernel
    verdict = installed.get("verdict")
    # An operation that ran is the better proof of the two; cuobjdump is only the earlier one.
    ran = only_unseen(now, installed) and (now.survey or {}).get("checked") == "ok"
    if verdict != "usable" and not ran:
        return f"{verdict or 'unknown'}: {installed.get('reason') or 'nothing is installed'}"
    if "check" in now.tried:
        return f"{title(installed)}: {now.tried['check']}"
    if kernel.version and installed.get("version", "").split("+")[0] != kernel.version:
        return f"{title(installed)} is installed, kernel.version is {kernel.version}"
    if must_be_built(kernel):
        key = request_key(now)
        if installed.get("key") != key:
            return f"{title(installed)} is not the build that is wanted ({key})"
    return None


def only_unseen(now: Situation, installed: Mapping[str, Any]) -> bool:
    """Whether nothing is wrong with it but that its architectures could not be looked at."""
    return installed.get("verdict") == "unknown" and not (now.survey or {}).get("cuobjdump")


def must_be_built(kernel: Kernel) -> bool:
    """Whether only our own build is accepted: asked for, or with patches."""
    return kernel.source == "build" or bool(kernel.patches)


def architecture(kernel: Kernel, survey: Mapping[str, Any]) -> str | None:
    """`120`: kernel.arch, else the host's GPU."""
    if kernel.arch:
        return parse_arch(kernel.arch).rstrip("af")
    return survey.get("sm")


def inputs(now: Situation) -> keys.Inputs | None:
    """What a build for this host would be made from; None while something of it is unknown."""
    kernel, survey = now.kernel, now.survey or {}
    sm = architecture(kernel, survey)
    torch, python = survey.get("torch"), survey.get("python")
    if not (kernel.git_commit and sm and torch and python):
        return None
    arch = kernel.arch if kernel.arch and kernel.arch[-1] in "af" else native(sm)
    return keys.Inputs(
        commit=kernel.git_commit,
        patches=tuple(patch.sha256 for patch in kernel.patches),
        torch=torch,
        cuda=survey.get("cuda") or "none",
        python=python,
        machine=str(survey.get("machine")),
        arch=arch,
        flags=cmake_flags(arch, kernel.cmake_args),
    )


def request_key(now: Situation) -> str | None:
    """The key of the build for this host; None while something of it is unknown."""
    made = inputs(now)
    return keys.make(made) if made else None


def request(now: Situation, venv: str | None, pip_arguments: tuple[str, ...]) -> Request:
    """The request for a build; `venv` is the engine's environment where it is the build host's
    own, None elsewhere (torch then comes from the package index). ValueError while unknown."""
    made, survey, kernel = inputs(now), now.survey or {}, now.kernel
    if made is None:
        raise ValueError("a build was chosen before its inputs were known")
    required = survey.get("required") or (None, None)
    return Request(
        key=keys.make(made),
        inputs=made,
        git_url=kernel.git_url,
        venv=venv,
        python=f"python{made.python[2]}.{made.python[3:]}",
        subdirectory=kernel.git_path,
        jobs=kernel.max_jobs,
        nvcc_threads=kernel.nvcc_threads,
        distribution=required[0],
        minimum=required[1],
        pip_arguments=pip_arguments,
    )


def expected(now: Situation) -> str:
    """What will probably happen on a host whose environment does not exist yet."""
    if must_be_built(now.kernel):
        return "expected: a wheel from the cache or a build"
    return "expected: the stock wheel that comes with them"


def is_that_stock_wheel(installed: Mapping[str, Any], version: str | None) -> bool:
    """Whether what is installed is whole and of this version, so that its download would end as it
    did. A mixed or cut one says nothing about the wheel."""
    whole = installed.get("verdict") in ("no-cubin", "abi-mismatch", "cuda-mismatch")
    return whole and not installed.get("key") and installed.get("version") == version


def title(installed: Mapping[str, Any]) -> str:
    """`sglang-kernel 0.4.10`."""
    name = installed.get("distribution") or "a kernel"
    return f"{name} {installed.get('version') or ''}".strip()


def _next_source(now: Situation, sm: str, fault: str) -> Step:
    kernel, survey = now.kernel, now.survey or {}
    key = request_key(now)
    if not must_be_built(kernel) and "stock" not in now.tried:
        name, version = survey.get("pinned") or (None, None)
        if not is_that_stock_wheel(survey.get("installed") or {}, kernel.version or version):
            return Step("stock", fault, version=kernel.version or version, distribution=name)
    if kernel.source != "wheel" and key:
        sources: tuple[tuple[Action, bool], ...] = (
            ("cached", key in (survey.get("cached") or ())),
            ("fleet", key in now.fleet),
            ("build", True),
        )
        for action, there in sources:
            if there and action not in now.tried:
                return Step(action, fault, key=key)
    tried = [f"no kernel for sm_{sm} works here: {fault}"]
    tried += [f"{name}: {reason}" for name, reason in now.tried.items()]
    if kernel.source == "wheel":
        tried.append("a build is not tried, because kernel.source is wheel")
    elif not kernel.git_commit:
        tried.append(
            "a build was not tried, because it needs kernel.git.commit (git ls-remote "
            f"{kernel.git_url} shows the commits of its tags)"
        )
    return Step("fail", "\n".join(tried))
