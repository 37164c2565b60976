"""Which kernel comes next, the fleet's cache, and what the inventory's `kernel` means."""

from __future__ import annotations

import dataclasses
import errno
import json
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from roles.inventory.model import Kernel, Patch
from roles.inventory.render import venv_path
from roles.remote.failing import HostFailed
from roles.sgl_kernel import building, choice, fleet, kernel_host, operations
from roles.sgl_kernel.choice import Situation, decide, probe_request, request_key
from roles.sgl_kernel.kernel_host import Ended
from sglangctl.sgl_kernel import cache
from sglangctl.sgl_kernel import key as keys
from sglangctl.sgl_kernel.build import request
from tests.kernel import sites
from tests.support import kernel_requests
from tests.support.inventory_case import engine, engine_errors

COMMIT = "a" * 40
USABLE = {
    "verdict": "usable",
    "reason": "has code for sm_120: 120a",
    "distribution": "sglang-kernel",
    "version": "0.4.10",
    "key": None,
}
SURVEY: dict[str, Any] = {
    "sm": "120",
    "venv": "/v",
    "machine": "x86_64",
    "torch": "2.14.1+cu130",
    "cuda": "13.0",
    "python": "cp312",
    "required": ["sglang-kernel", "0.4.9"],
    "pinned": ["sglang-kernel", "0.4.10"],
    "installed": USABLE,
    "checked": "ok",
    "cuobjdump": "/c",
    "cached": [],
    "problems": [],
}
BAD = {**USABLE, "verdict": "incomplete", "reason": "common_ops is missing"}
NO_CUBIN = {**USABLE, "verdict": "no-cubin", "reason": "no code for sm_121"}


def now(kernel: Kernel | None = None, device: str | None = None, **changes: Any) -> Situation:
    tried, there = changes.pop("tried", {}), changes.pop("fleet", ())
    survey = None if changes.pop("unread", False) else {**SURVEY, **changes}
    return Situation(kernel or Kernel(), device, survey, there, tried)


def patched(**changes: Any) -> Kernel:
    return Kernel(git_commit=COMMIT, git_url="u", patches=(Patch("p", "f" * 64, b""),), **changes)


def test_an_installed_usable_and_checked_kernel_needs_nothing() -> None:
    step = decide(now())
    assert step.action == "nothing"


def test_it_is_checked_once() -> None:
    assert decide(now(checked=None)).action == "check"
    assert decide(now(checked="unknown")).action == "nothing"


def test_device_cpu_needs_none_and_the_plan_says_why() -> None:
    step = decide(now(device="cpu", sm=None, installed=None))
    assert step.action == "none"
    assert "device: cpu" in step.reason


def test_a_missing_gpu_is_never_a_reason_for_none() -> None:
    step = decide(now(sm=None))
    assert step.action == "fail"
    assert "driver" in step.reason
    assert decide(now(Kernel(arch="120a"), sm=None)).action == "nothing"


def test_insisting_with_device_cpu_is_obeyed() -> None:
    assert decide(now(Kernel(source="wheel"), device="cpu", installed=BAD)).action == "stock"


def test_none_leaves_it_alone() -> None:
    assert decide(now(Kernel(source="none"), installed=BAD, sm=None)).action == "none"


def test_before_the_packages_it_is_decided_later() -> None:
    step = decide(now(python=None, torch=None, installed=None))
    assert step.action == "later"
    assert "stock wheel" in step.reason


def test_an_unread_host_fails() -> None:
    assert decide(now(unread=True)).action == "fail"


def provide(**changes: Any) -> list[str]:
    """The sources in their order, when none helps."""
    tried: dict[str, str] = {}
    while True:
        step = decide(now(tried=dict(tried), **changes))
        if step.action in ("fail", "nothing"):
            return [*tried, step.action]
        assert step.action not in tried
        tried[step.action] = "no"


def test_the_rungs_of_auto() -> None:
    kernel = Kernel(git_commit=COMMIT, git_url="u")
    key = request_key(now(kernel))
    assert key is not None
    assert provide(kernel=kernel, installed=BAD) == ["stock", "build", "fail"]
    assert provide(kernel=kernel, installed=BAD, cached=[key], fleet=(key,)) == [
        "stock",
        "cached",
        "fleet",
        "build",
        "fail",
    ]
    assert provide(kernel=kernel, installed=NO_CUBIN, fleet=(key,)) == ["fleet", "build", "fail"]


def test_without_a_commit_auto_ends_before_the_build_and_says_what_is_missing() -> None:
    assert provide(kernel=Kernel(git_url="u"), installed=BAD) == ["stock", "fail"]
    step = decide(now(Kernel(git_url="u"), installed=BAD, tried={"stock": "no network"}))
    assert "kernel.git.commit" in step.reason
    assert "no network" in step.reason
    assert "common_ops is missing" in step.reason


def test_the_rungs_of_wheel_and_build() -> None:
    assert provide(kernel=Kernel(source="wheel", git_commit=COMMIT), installed=BAD) == [
        "stock",
        "fail",
    ]
    assert provide(kernel=Kernel(source="build", git_commit=COMMIT), installed=USABLE) == [
        "build",
        "fail",
    ]


def test_patches_need_a_build_even_over_a_usable_wheel() -> None:
    assert decide(now(patched())).action == "build"
    key = request_key(now(patched()))
    assert decide(now(patched(), installed={**USABLE, "key": key})).action == "nothing"
    other = {**USABLE, "key": "0" * 24}
    assert decide(now(patched(), installed=other)).action == "build"


def test_a_broken_build_of_the_right_key_is_installed_again_from_the_cache() -> None:
    key = request_key(now(patched()))
    step = decide(now(patched(), installed={**BAD, "key": key}, cached=[key]))
    assert (step.action, step.key) == ("cached", key)


def test_another_version_is_installed() -> None:
    step = decide(now(Kernel(version="0.4.9")))
    assert (step.action, step.version) == ("stock", "0.4.9")
    assert decide(now(Kernel(version="0.4.10"))).action == "nothing"


def test_the_stock_wheel_is_the_one_that_sglang_pins() -> None:
    step = decide(now(installed=BAD))
    assert (step.distribution, step.version) == ("sglang-kernel", "0.4.10")


def test_a_stock_wheel_that_is_known_not_to_fit_is_not_fetched_again() -> None:
    assert decide(now(installed=NO_CUBIN)).action == "fail"
    mixed = {**USABLE, "verdict": "mixed"}
    assert decide(now(installed=mixed)).action == "stock"


def test_without_cuobjdump_it_is_fetched_and_else_an_operation_tells() -> None:
    def step(checked: str | None, **tried: str) -> choice.Step:
        unknown = {**USABLE, "verdict": "unknown", "reason": "no cuobjdump"}
        return decide(now(installed=unknown, cuobjdump=None, checked=checked, tried=tried))

    assert step(None).action == "tools"
    assert step(None, tools="no network").action == "check"
    assert step("ok", tools="no network").action == "nothing"
    assert step("ok").action == "nothing", "the next deploy has nothing to do"
    refused = step("unknown", tools="no network")
    assert refused.action == "fail" and "no network" in refused.reason


def test_a_kernel_that_fails_its_check_is_replaced() -> None:
    kernel = Kernel(git_commit=COMMIT, git_url="u")
    tried = {"check": "no kernel image", "stock": "no kernel image"}
    assert decide(now(kernel, tried=tried)).action == "build"


def test_every_field_of_the_inventory_s_kernel_is_used() -> None:
    """A change of any field changes the step, the request, the environment or the place."""
    base = Kernel(source="build", git_commit=COMMIT, git_url="u", cache="/c")
    changes: dict[str, Any] = {
        "source": "none",
        "version": "0.4.9",
        "patches": (Patch("p", "f" * 64, b"x"),),
        "arch": "121a",
        "max_jobs": 3,
        "nvcc_threads": 2,
        "cmake_args": ("-DX=1",),
        "git_url": "v",
        "git_commit": "b" * 40,
        "git_path": "sgl-kernel",
    }
    read_by_operations = {"build_host", "cache"}
    assert set(changes) | read_by_operations == {item.name for item in dataclasses.fields(Kernel)}

    def effect(kernel: Kernel) -> object:
        made = choice.request(now(kernel), None, ()) if kernel.source != "none" else None
        return decide(now(kernel)), kernel.decides, made and request.dump(made)

    for name, value in changes.items():
        changed = dataclasses.replace(base, **{name: value})
        assert effect(changed) != effect(base), name


def test_the_request_is_one_that_the_host_accepts() -> None:
    kernel = Kernel(source="build", git_commit=COMMIT, git_url="https://x/y.git", max_jobs=4)
    made = choice.request(now(kernel), "/v", ("--pre",))
    assert request.parse(json.loads(request.dump(made))) == made
    assert (made.distribution, made.minimum, made.python) == (
        "sglang-kernel",
        "0.4.9",
        "python3.12",
    )
    assert made.inputs.arch == "120a"


def test_two_hosts_with_the_same_of_everything_share_a_key() -> None:
    kernel = Kernel(source="build", git_commit=COMMIT, git_url="u")
    here, there = now(kernel, venv="/a"), now(kernel, venv="/b", cached=["x"])
    assert request_key(here) == request_key(there)
    assert request_key(now(kernel, torch="2.15.0+cu130")) != request_key(here)


def test_only_engines_with_a_kernel_are_asked_for() -> None:
    gpu, cpu = engine(), engine("flags: {device: cpu}")
    named = engine("kernel: {arch: sm_120a}")
    found = probe_request({"a": (gpu, "/a"), "b": (cpu, "/b"), "c": (named, "/c")})
    assert found == {"a": {"venv": "/a", "sm": None}, "c": {"venv": "/c", "sm": "120"}}


def test_the_default_kernel_does_not_change_the_environment() -> None:
    assert engine().kernel.decides == {}
    assert venv_path(engine("kernel: {max_jobs: 4, nvcc_threads: 2}")) == venv_path(engine())
    build = f"kernel: {{source: build, git: {{commit: {COMMIT}}}}}"
    assert venv_path(engine(build)) != venv_path(engine())


def test_patches_are_read_and_part_of_the_environment(tmp_path: Path) -> None:
    (tmp_path / "a.patch").write_text("one")
    text = f"kernel: {{patches: [a.patch], git: {{commit: {COMMIT}}}}}"
    first = engine(text, tmp_path)
    (tmp_path / "a.patch").write_text("two")
    second = engine(text, tmp_path)
    assert first.kernel.patches[0].content == b"one"
    assert venv_path(first) != venv_path(second)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kernel: {source: bulid}", ["auto, wheel, build", "build"]),
        ("kernel: {source: build}", ["kernel.git.commit", "40 hex digits"]),
        ("kernel: {git: {commit: main}}", ["kernel.git.commit", "40 hex digits"]),
        ("kernel: {max_jobs: 0}", ["kernel.max_jobs"]),
        ("kernel: {max_jobs: many}", ["kernel.max_jobs", "auto or a number"]),
        ("kernel: {arch: blackwell}", ["kernel.arch", "120a"]),
        ("kernel: {build_host: gpu9}", ["kernel.build_host", "a host of this inventory"]),
        ("kernel: {patches: [x.patch]}", ["the commit that they are for"]),
        ("kernel: {source: wheel, patches: [x.patch]}", ["they need a build"]),
        ("kernel: {git: {url: --upload-pack=x}}", ["kernel.git.url"]),
        ("kernel: {git: {path: ../x}}", ["kernel.git.path"]),
        ("kernel: {cmake_args: [evil]}", ["kernel.cmake_args"]),
        (f"kernel: {{patches: [x.patch], git: {{commit: {COMMIT}}}}}", ["cannot be read"]),
        (
            f"kernel: {{source: build, version: 0.4.9, git: {{commit: {COMMIT}}}}}",
            ["kernel.version"],
        ),
    ],
)
def test_bad_kernels_are_refused_with_their_place(text: str, words: list[str]) -> None:
    said = "\n".join(engine_errors(text))
    for word in words:
        assert word in said


def entry(folder: Path) -> tuple[str, Path, bytes]:
    wheel = sites.wheel(folder, sites.files())
    key = keys.make(kernel_requests.inputs())
    said = {"file": wheel.name, "sha256": cache.sha256(wheel)}
    made_from = asdict(kernel_requests.inputs())
    document = {"v": 1, "key": key, "inputs": made_from, "wheel": said}
    return key, wheel, json.dumps(document).encode()


def test_the_fleet_s_cache(tmp_path: Path) -> None:
    key, wheel, provenance = entry(tmp_path)
    folder = str(tmp_path / "fleet")
    assert fleet.keys(folder) == ()
    fetched = []

    def fetch(name: str, target: Path) -> None:
        fetched.append(name)
        target.write_bytes(wheel.read_bytes())

    made = fleet.add(folder, key, provenance, fetch)
    assert fleet.keys(folder) == (key,)
    assert fleet.find(folder, key) == made
    assert fleet.add(folder, key, provenance, fetch).sha256 == made.sha256
    assert [item.name for item in Path(folder).iterdir()] == [key]


def test_a_wheel_that_arrives_cut_is_not_kept(tmp_path: Path) -> None:
    key, wheel, provenance = entry(tmp_path)
    folder = str(tmp_path / "fleet")
    with pytest.raises(ValueError, match="another sha256"):
        fleet.add(folder, key, provenance, lambda name, to: to.write_bytes(wheel.read_bytes()[:99]))
    assert list(Path(folder).iterdir()) == []


@pytest.mark.parametrize("lie", [{"torch": "2.9.9+cu130"}, {"commit": "b" * 40}, {"more": "1"}])
def test_a_wheel_of_other_inputs_than_were_asked_for_is_not_taken(
    tmp_path: Path, lie: dict[str, str]
) -> None:
    """What a host says of itself is compared with the request; nothing of it is fetched."""
    key, _, provenance = entry(tmp_path)
    document = json.loads(provenance)
    document["inputs"].update(lie)
    with pytest.raises(ValueError, match=r"inputs|not that of"):
        fleet.add(str(tmp_path / "fleet"), key, json.dumps(document).encode(), pytest.fail)
    assert fleet.keys(str(tmp_path / "fleet")) == ()


@pytest.mark.parametrize("name", ["-x.whl", "a\x1b[2J.whl", "a\nb.whl", ".whl", "x" * 300 + ".whl"])
def test_a_wheel_with_a_strange_name_is_not_fetched(tmp_path: Path, name: str) -> None:
    key, _, provenance = entry(tmp_path)
    document = json.loads(provenance)
    document["wheel"]["file"] = name
    with pytest.raises(ValueError, match="not that of"):
        fleet.add(str(tmp_path / "fleet"), key, json.dumps(document).encode(), pytest.fail)


@pytest.mark.parametrize(
    "said", ["[]", "[" * 100_000, '{"wheel": []}', '{"wheel": {"file": "x.whl"}}']
)
def test_a_provenance_of_another_shape_is_a_sentence(tmp_path: Path, said: str) -> None:
    remote = SimpleNamespace(
        host=SimpleNamespace(name="bad"),
        step=lambda *words: kernel_host.Ended(0, [said]),
    )
    with pytest.raises(HostFailed, match=r"cannot be put into .* it is whole on bad"):
        building.collect(remote, "0" * 24, str(tmp_path / "fleet"))  # type: ignore[arg-type]


@pytest.mark.parametrize("named", [True, False])
def test_only_a_host_that_the_inventory_names_gives_its_wheel_to_others(
    tmp_path: Path, named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that builds for itself may be anybody's: what it built stays there."""
    collected: list[str] = []
    monkeypatch.setattr(operations.building, "build_host", lambda state, own, name: own)
    monkeypatch.setattr(operations.building, "build", lambda *a: None)
    monkeypatch.setattr(operations.building, "collect", lambda host, key, to: collected.append(key))
    monkeypatch.setattr(operations, "request", lambda *a: None)
    spec = dataclasses.replace(
        engine(), kernel=Kernel(cache=str(tmp_path), build_host="h" if named else None)
    )
    remote = SimpleNamespace(host=object(), survey=None)
    made = operations.obtain(None, remote, spec, "/v", None, "0" * 24)  # type: ignore[arg-type]
    assert made is None
    assert collected == ["0" * 24] * named


def test_a_file_of_a_host_that_does_not_end(tmp_path: Path) -> None:
    with (
        kernel_host.Bounded(tmp_path / "x", 1 << 20) as file,
        pytest.raises(OSError, match="more than 1 MiB"),
    ):
        for _ in range(100):
            file.write(b"x" * 65536)
    assert (tmp_path / "x").stat().st_size <= 1 << 20


def test_a_full_controller_leaves_no_trace(tmp_path: Path) -> None:
    key, _, provenance = entry(tmp_path)
    folder = str(tmp_path / "fleet")

    def full(name: str, target: Path) -> None:
        target.write_bytes(b"some")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        fleet.add(folder, key, provenance, full)
    assert list(Path(folder).iterdir()) == []


def test_a_damaged_entry_is_replaced(tmp_path: Path) -> None:
    key, wheel, provenance = entry(tmp_path)
    folder = str(tmp_path / "fleet")

    def fetch(name: str, target: Path) -> None:
        target.write_bytes(wheel.read_bytes())

    made = fleet.add(folder, key, provenance, fetch)
    made.wheel.write_bytes(b"cut")
    assert fleet.find(folder, key) is None
    assert fleet.add(folder, key, provenance, fetch).wheel.read_bytes() == wheel.read_bytes()


class Machine:
    """A host whose sources end as the test says; `kernels`: source -> (verdict, outcome of check)."""

    def __init__(self, kernels: dict[str, tuple[str, str]], key: str) -> None:
        self.kernels, self.key = kernels, key
        self.host, self.there, self.checked = object(), "old", None
        self.done: list[str] = []

    def survey(self, venv: str, sm: str | None) -> dict[str, Any]:
        verdict, _ = self.kernels.get(self.there, ("incomplete", ""))
        built = self.key if self.there == "build" else None
        installed = {**USABLE, "verdict": verdict, "key": built}
        built_before = "build" in self.kernels and "build" in self.done
        cached = [self.key] if built_before else []
        return {**SURVEY, "installed": installed, "checked": self.checked, "cached": cached}

    def take(self, *arguments: Any) -> str | None:
        action = arguments[-1].action
        self.done.append(action)
        if action == "check":
            self.checked = self.kernels[self.there][1]
            return "no kernel image" if self.checked == "failed" else None
        if self.kernels.get(action, ("", ""))[0] != "usable":
            return f"{action} does not fit"
        self.there, self.checked = action, None
        return None


@pytest.mark.parametrize(
    ("kernels", "done", "failure"),
    [
        ({"old": ("usable", "ok")}, ["check"], None),
        ({"stock": ("usable", "ok")}, ["stock", "check"], None),
        ({"build": ("usable", "ok")}, ["stock", "build", "check"], None),
        (
            {"stock": ("usable", "failed"), "build": ("usable", "ok")},
            ["stock", "check", "build", "check"],
            None,
        ),
        (
            {"old": ("usable", "failed"), "build": ("usable", "unknown")},
            ["check", "build", "check"],
            None,
        ),
        (
            {"stock": ("usable", "failed"), "build": ("usable", "failed")},
            ["stock", "check", "build", "check"],
            "no kernel image",
        ),
        ({}, ["stock", "build"], "build does not fit"),
    ],
)
def test_providing_ends_with_a_checked_kernel_or_with_the_whole_story(
    monkeypatch: pytest.MonkeyPatch,
    kernels: dict[str, tuple[str, str]],
    done: list[str],
    failure: str | None,
) -> None:
    spec = dataclasses.replace(engine(), kernel=Kernel(git_commit=COMMIT, git_url="u"))
    machine = Machine(kernels, request_key(now(spec.kernel)) or "")
    monkeypatch.setattr(operations, "say", lambda *a, **k: None)
    monkeypatch.setattr(operations, "take", machine.take)
    if failure is None:
        operations.provide(None, machine, spec, "/v")  # type: ignore[arg-type]
    else:
        with pytest.raises(HostFailed, match=failure):
            operations.provide(None, machine, spec, "/v")  # type: ignore[arg-type]
    assert machine.done == done


@pytest.mark.parametrize(
    ("document", "arch", "result"),
    [
        ({"outcome": "ok", "stage": "done", "reason": "r"}, None, None),
        (
            {"outcome": "failed", "stage": "op", "reason": "no kernel image"},
            None,
            "no kernel image",
        ),
        ({"outcome": "unknown", "stage": "op", "reason": "no memory"}, None, None),
        ({"outcome": "unknown", "stage": "no-gpu", "reason": "r"}, "120a", None),
    ],
)
def test_what_a_check_means(document: dict[str, Any], arch: str | None, result: str | None) -> None:
    spec = dataclasses.replace(engine(), kernel=Kernel(arch=arch))
    ended = Ended(0, json.dumps(document, indent=2).splitlines())
    assert operations.checked_kernel(ended, spec) == result


def test_gpus_that_torch_does_not_see_fail_the_host() -> None:
    warning = "UserWarning: CUDA initialization: The NVIDIA driver on your system is too old"
    document = {"outcome": "unknown", "stage": "no-gpu", "reason": "r", "evidence": [warning]}
    with pytest.raises(HostFailed, match=r"torch sees none(.|\n)*too old"):
        operations.checked_kernel(Ended(2, [json.dumps(document)]), engine())


def test_a_check_that_says_nothing_fails_the_host() -> None:
    with pytest.raises(HostFailed, match="cannot be kept"):
        operations.checked_kernel(Ended(2, ["sglangctl kernel: it cannot be kept"]), engine())
