"""Kernels built, shared, installed, broken and repaired on container hosts, with a real nvcc."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from roles.inventory.load import load_inventory
from roles.inventory.render import venv_path
from sglangctl.sgl_kernel.build import request as requests
from tests.container.conftest import HostFactory
from tests.container.deploying import changed, deploy, ssh_data, write_inventory
from tests.container.kernel_hosts import (
    CACHE,
    PROJECT,
    SOURCE,
    TORCH,
    VENV,
    KernelHost,
    cuobjdump_mount,
    mounts,
)
from tests.kernel import cuda

pytestmark = [pytest.mark.container, pytest.mark.timeout(900)]
SCRIPT = "../tests/kernel/deploy"
SM100 = "sgl_kernel/sm100/common_ops.abi3.so"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """(the repository with the test project, its commit)."""
    folder = tmp_path_factory.mktemp("kernel") / "source"
    commit = cuda.repository(folder, PROJECT)
    return folder, commit


@pytest.fixture(scope="module")
def builder(module_host_factory: HostFactory, source: tuple[Path, str]) -> Iterator[KernelHost]:
    """A host with compilers, nvcc and an environment."""
    folder, commit = source
    host = module_host_factory("builder", image="kernel", mounts=mounts(folder))
    yield KernelHost(host, commit).prepare()


@pytest.fixture(scope="module")
def bare(module_host_factory: HostFactory, source: tuple[Path, str]) -> KernelHost:
    """A host of the fleet without nvcc and without compilers."""
    host = module_host_factory("bare", image="python", mounts=cuobjdump_mount())
    return KernelHost(host, source[1])


@pytest.fixture(scope="module")
def small(builder: KernelHost) -> requests.Request:
    """The request of the build that the fleet shares: the operation alone, one compiler."""
    return builder.request("-DTEST_SMALL=ON")


@pytest.fixture(scope="module")
def built(builder: KernelHost, small: requests.Request) -> str:
    """The key of that build, finished on the builder (by the fleet's test, or here)."""
    state, events = builder.build(small)
    assert state == "built", events
    return small.key


def steps(events: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(event["step"] for event in events))


def end(events: list[dict[str, Any]]) -> str:
    (last,) = [event for event in events if event["step"] == "end"]
    return f"{last['text']} | {last.get('next_step')}"


def test_a_fleet_builds_once_and_shares(
    builder: KernelHost,
    bare: KernelHost,
    small: requests.Request,
    tmp_path: Path,
    source: tuple[Path, str],
) -> None:
    """The whole role: one host builds, the other gets the wheel, a second deploy does nothing, a
    lost library is repaired."""
    kernel = {
        "source": "build",
        "arch": "120a",
        "max_jobs": 2,
        "build_host": builder.host.ip,
        "git": {"url": SOURCE, "commit": source[1]},
        "cache": str(tmp_path / "fleet"),
        "cmake_args": ["-DTEST_SMALL=ON"],
    }
    engine = {
        "model": {"path": "/models/tiny-qwen3"},
        "user": "nobody",  # the check runs as somebody who is there: nothing else is deployed here
        "kernel": kernel,
        "install": {
            "system_site_packages": True,
            "pip_arguments": ["--no-index", "--find-links=/srv/wheels"],
        },
    }
    hosts = {
        one.host.ip: {"ssh": ssh_data(one.host), "engines": {"e": engine}}
        for one in (builder, bare)
    }
    inventory = write_inventory(tmp_path / "hosts.yml", hosts)
    spec = load_inventory(inventory).hosts[0].spec
    assert spec is not None
    venv = venv_path(spec.engines[0])
    for one in (builder, bare):
        one.host.exec("python3", "-m", "venv", "--system-site-packages", venv)

    dry = deploy(inventory, "--dry", "--diff", script=SCRIPT)
    assert dry.returncode == 0, dry.stderr
    assert "kernel of e: build " in dry.stderr
    assert not bare.sh(f"ls -A {CACHE} 2>/dev/null || true"), "a dry run writes nothing"

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(deploy, inventory, "-y", script=SCRIPT)
        builder.wait_for_step(small.key, '"step":"jobs"', 400, lambda: not running.done())
        # The link to the host that builds is cut: the build does not notice, the deploy goes on.
        # (The sessions' titles; not the listener's. Without a shell, which would match itself.)
        builder.host.exec("pkill", "-KILL", "--full", "^sshd: root", check=False)
        done = running.result()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "link lost" in done.stderr
    assert re.search(r"compiling: \d+ of \d+", done.stderr)
    assert done.stderr.count("promote: into") == 1, "one build for both hosts"
    (key,) = [path.name for path in (tmp_path / "fleet").iterdir()]
    assert key == small.key, "the controller and a test make the same key of the same inputs"
    provenance = json.loads((tmp_path / "fleet" / key / "provenance.json").read_text())
    assert provenance["inputs"]["torch"] == TORCH
    assert provenance["inspection"]["archs"] == {SM100: ["120a"]}
    assert provenance["only_arch"] is True
    assert provenance["compilers"]["nvcc"].startswith("1")
    assert provenance["peak_memory_mib"] > 0
    # The source is code of others: none of it was root's.
    root = f"{CACHE}/.build/{key}"
    assert "-- built by sglang-build\n" in builder.sh(f"cat {root}/builder/build.log")
    assert builder.sh("find / -xdev -name of-the-build") == ""
    others = builder.sh(f"find {root} -maxdepth 1 ! -user root -printf '%f %u %m\n'")
    assert others == "builder sglang-build 700\n"
    for one in (builder, bare):
        said = one.ctl("inspect", "installed", f"--venv={venv}", "--sm=120").stdout
        assert said.startswith("usable: sglang-kernel 0.4.10")
    bare.host.exec("sh", "-c", "! command -v nvcc && ! ls /usr/local/cuda")

    assert pending_with(inventory) == {}
    library = f"{venv}/lib/python3.11/site-packages/{SM100}"
    bare.host.exec("rm", library)
    plan = pending_with(inventory)
    assert list(plan.values()) == [[bare.host.ip]]
    repaired = deploy(inventory, "-y", "--json", script=SCRIPT)
    assert repaired.returncode == 0, repaired.stderr
    assert list(changed(repaired).values()) == [[bare.host.ip]]
    bare.host.exec("test", "-s", library)


def pending_with(inventory: Path) -> dict[str, list[str]]:
    done = deploy(inventory, "--dry", "--json", script=SCRIPT)
    assert done.returncode == 0, done.stdout + done.stderr
    return {
        operation["name"]: operation["hosts_with_change"]
        for operation in json.loads(done.stdout)["plan"]
        if operation["hosts_with_change"]
    }


def test_only_the_wanted_architecture_is_in_the_wheel(builder: KernelHost, built: str) -> None:
    wheel = builder.sh(f"echo {CACHE}/{built}/*.whl").strip()
    document = json.loads(builder.ctl("inspect", wheel, "--sm=120", "--json").stdout)
    assert document["verdict"] == "usable"
    assert {item["path"]: item["archs"] for item in document["files"]} == {SM100: ["120a"]}
    assert document["key"] == built
    for sm, verdict in (("121", "no-cubin"), ("90", "incomplete")):
        other = builder.ctl("inspect", wheel, f"--sm={sm}", "--json", check=False)
        assert (other.returncode, json.loads(other.stdout)["verdict"]) == (1, verdict)
    names = builder.sh(f"python3 -m zipfile -l {wheel}")
    assert "triton_kernels/__init__.py" in names
    assert "unwanted" not in names


def test_an_architecture_that_the_source_does_not_know_builds_all_and_says_so(
    builder: KernelHost,
) -> None:
    state, events = builder.build(builder.request("-DTEST_SMALL=ON", arch="121a"))
    # The source has no sm_121a: nothing is dropped, and then the wheel is refused for this GPU.
    assert state == "failed"
    assert any("all architectures are built" in event.get("text", "") for event in events)
    assert "no-cubin" in end(events)
    assert "121" in end(events)


def test_without_the_policy_variable_it_fails_with_the_right_sentence(builder: KernelHost) -> None:
    request = builder.request("-DTEST_POLICY=1", policy_version_minimum=None)
    state, events = builder.build(request)
    assert state == "failed"
    assert "CMake below 3.5" in end(events)
    assert "CMAKE_POLICY_VERSION_MINIMUM=3.5" in end(events)


def test_jobs_are_compilers_and_builds_take_turns(
    builder: KernelHost, small: requests.Request, built: str
) -> None:
    """Two deploys at once share one build; another one waits; and three jobs are three nvcc."""
    counter = "/srv/counting-nvcc"
    script = (
        "#!/bin/sh\n"
        'case "$*" in *csrc/*) ;; *) exec /usr/local/cuda/bin/nvcc "$@";; esac\n'
        'echo "$(date +%s%N) 1" >> "$TMPDIR/nvcc.log"\n'
        '/usr/local/cuda/bin/nvcc "$@"; status=$?\n'
        "sleep 1\n"  # so that what may run together does
        'echo "$(date +%s%N) -1" >> "$TMPDIR/nvcc.log"\n'
        "exit $status\n"
    )
    builder.host.copy_in(script.encode(), counter, mode=0o755)
    # Without ccache, which calls a compiler twice, the first time to preprocess.
    request = builder.request(f"-DCMAKE_CUDA_COMPILER={counter}", "-DENABLE_CCACHE=OFF", jobs=3)
    assert builder.start(request) == "started"
    assert builder.start(request) == "running"
    builder.wait_for_step(request.key, '"step":"source"')
    assert builder.start(small) == "started"
    builder.wait_for_step(small.key, '"step":"lock"')
    assert builder.follow(request.key)[0] == "built"
    state, events = builder.follow(small.key)
    assert (state, steps(events)) == ("built", ["lock", "end"]), "it was in the cache already"
    assert request.key in events[0]["text"]
    running = most = total = 0
    for line in sorted(
        builder.sh(f"cat {CACHE}/.build/{request.key}/builder/tmp/nvcc.log").splitlines()
    ):
        change = int(line.split()[1])
        running += change
        total += change > 0
        most = max(most, running)
    assert total == 6
    assert most == 3


def test_kill_and_reboot_go_on_from_the_build_folder(builder: KernelHost) -> None:
    request = builder.request("-DTEST_HEAVY=6000", jobs=1)
    unit = f"sglangctl-build-{request.key}.service"
    totals = []
    for blow in ("kill", "reboot", "none"):
        builder.start(request)
        if blow != "none":
            builder.wait_for_progress(request.key, steps=3 if not totals else 1)
            if blow == "kill":
                builder.host.exec("systemctl", "kill", "--signal=KILL", unit)
            else:
                builder.host.reboot()
        state, events = builder.follow(request.key)
        totals.append(next(event["total"] for event in events if "total" in event))
        assert state == ("gone" if blow != "none" else "built")
    assert totals[0] > totals[1] > totals[2], "ninja goes on with what is left"
    assert builder.sh("pgrep -c cicc || true").strip() == "0"


def test_a_full_disk_during_promotion_leaves_no_half_entry(
    builder: KernelHost, small: requests.Request, built: str
) -> None:
    request, key = small, built
    builder.sh(
        f"rm -r {CACHE}/{key} && mkdir -p /srv/real && mv {CACHE} /srv/real/kernel && mkdir {CACHE}"
        f" && mount -t tmpfs -o size=64k none {CACHE}"
        f" && for name in .build .tools .third-party .ccache .environments; do mkdir -p /srv/real/kernel/$name"
        f" {CACHE}/$name && mount --bind /srv/real/kernel/$name {CACHE}/$name; done"
    )
    try:
        state, events = builder.build(request)
        assert (state, "promote" in steps(events)) == ("failed", True)
        assert "disk is full" in end(events)
        assert builder.sh(f"ls -A {CACHE}").split() == [
            ".build",
            ".ccache",
            ".environments",
            ".third-party",
            ".tools",
        ]
    finally:
        builder.sh(
            f"for name in .build .tools .third-party .ccache .environments; do umount {CACHE}/$name; done;"
            f" umount {CACHE} && rmdir {CACHE} && mv /srv/real/kernel {CACHE}"
        )
    state, events = builder.build(request)
    assert state == "built", end(events)
    assert builder.sh(f"ls {CACHE}/{key}").count("provenance.json") == 1


def test_broken_installations_are_named_and_repaired(builder: KernelHost, built: str) -> None:
    site = f"{VENV}/lib/python3.11/site-packages"
    inspect = ["inspect", "installed", f"--venv={VENV}", "--sm=120", "--json"]

    def verdict() -> tuple[str, str]:
        document = json.loads(builder.ctl(*inspect, check=False).stdout)
        return document["verdict"], document["reason"]

    def install() -> str:
        return builder.ctl("install", built, f"--venv={VENV}", "--sm=120").stdout

    assert "usable" in install()
    assert verdict()[0] == "usable"
    check = builder.ctl("check", f"--venv={VENV}", "--json", check=False)
    assert check.returncode == 2, "no GPU: not run is not ok"
    assert "torch sees no GPU" in json.loads(check.stdout)["reason"]

    # A cut library: the inspection names it; a real import dies of it.
    builder.sh(f"truncate -s 20000 {site}/{SM100}")
    assert verdict()[0] == "incomplete"
    cut = builder.ctl("check", f"--venv={VENV}", "--json", check=False)
    assert (cut.returncode, json.loads(cut.stdout)["cause"]) == (1, "kernel-broken")
    install()

    # Both distributions over one folder, laid there as pip does.
    old = "sgl_kernel-0.3.21.dist-info"
    builder.sh(
        f"cp -r {site}/sglang_kernel-0.4.10.dist-info {site}/{old} && "
        f"sed -i 's/^Name:.*/Name: sgl-kernel/; s/^Version:.*/Version: 0.3.21/' {site}/{old}/METADATA"
    )
    assert verdict()[0] == "mixed"
    assert f"removed {old}" in install()
    assert verdict()[0] == "usable"

    # Another torch: the real loader does not find the symbol that the build's torch had.
    builder.sh(
        f"mkdir -p {site}/torch/lib && cd {site}/torch && "
        "echo 'int nothing;' | gcc -shared -Wl,-soname,libc10.so -x c -o lib/libc10.so - && "
        "printf \"__version__ = '2.12.0+cpu'\\ncuda: Optional[str] = None\\n\" > version.py && "
        'printf "import ctypes, os\\n'
        "ctypes.CDLL(os.path.join(os.path.dirname(__file__), 'lib/libc10.so'), ctypes.RTLD_GLOBAL)\\n"
        "__version__ = '2.12.0+cpu'\\n"
        "class version: cuda = None\\nclass cuda:\\n    is_available = staticmethod(lambda: False)\\n"
        '" > __init__.py'
    )
    try:
        found, reason = verdict()
        assert found == "abi-mismatch"
        assert TORCH in reason
        assert "2.12.0+cpu" in reason
        failed = json.loads(builder.ctl("check", f"--venv={VENV}", "--json", check=False).stdout)
        assert failed["cause"] == "kernel-broken"
        assert re.search(
            rf"built for torch {re.escape(TORCH)}, .* torch 2\.12\.0\+cpu .*GetCPUAllocator",
            failed["reason"],
        )
        refused = builder.ctl("install", built, f"--venv={VENV}", "--sm=120", check=False)
        assert (refused.returncode, "abi-mismatch" in refused.stdout) == (1, True)
    finally:
        builder.sh(f"rm -rf {site}/torch")

    # Editable, by the real scikit-build-core: the silent one.
    venv = builder.sh(f"ls -td {CACHE}/.environments/* | head -1").strip()
    builder.sh(
        f"cp -r {CACHE}/.build/{built}/builder/source /root/editable && cd /root/editable && "
        f"env PATH={venv}/bin:/usr/local/cuda/bin:$PATH CMAKE_POLICY_VERSION_MINIMUM=3.5 "
        "CMAKE_GENERATOR=Ninja CMAKE_BUILD_PARALLEL_LEVEL=2 CCACHE_DIR=/root/ccache "
        "CMAKE_ARGS='-DTEST_SMALL=ON -DENABLE_BELOW_SM90=OFF' "
        f"{venv}/bin/python -m pip install -q --no-build-isolation --no-deps --no-index "
        "--force-reinstall -e .",
        timeout=400,
    )
    arguments = ["inspect", "installed", f"--venv={venv}", "--sm=120", "--json"]
    document = json.loads(builder.ctl(*arguments, check=False).stdout)
    assert (document["verdict"], "editable" in document["reason"]) == ("incomplete", True)


def test_a_build_that_asks_for_too_much_memory_ends_well(
    host_factory: HostFactory, source: tuple[Path, str]
) -> None:
    """A limit that allows two of these compilers, and a build that is asked for eight jobs."""
    folder, commit = source
    host = host_factory("narrow", image="kernel", mounts=mounts(folder), memory="1300m")
    narrow = KernelHost(host, commit).prepare()
    request = narrow.request("-DTEST_HEAVY=12000", jobs=8)
    state, events = narrow.build(request)
    retries = [event for event in events if event["step"] == "retry"]
    assert state == "built", end(events)
    assert [event["jobs"] for event in retries][:1] == [4]
    assert all("lack of memory" in event["text"] for event in retries)
    (planned,) = [event for event in events if event["step"] == "jobs"]
    assert "the cgroup's limit" in planned["text"]
    provenance = json.loads(narrow.sh(f"cat {CACHE}/{request.key}/provenance.json"))
    assert provenance["jobs"][0] == 8
    assert provenance["jobs"][-1] <= 4
    assert 300 < provenance["peak_memory_mib"] < 1400
