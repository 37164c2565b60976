"""What is checked, in this order; each function returns what it measured, or fails with an assertion.

Later checks build on the state that earlier ones leave (an engine that serves); one whose
ground is missing is skipped and says so.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.gpu.bench import ENGINE, FILES, HOLDER, UNIT, Bench, Deployed
from tests.hosts.standins import shared
from tests.support import faulty_torch

Measured = dict[str, Any]
HERE = Path(__file__).parent
SERVES = ("serving", "ready", "degraded")
HOLDER_GIB = 60
TAKEN_GIB = 100
UP_S = 240.0
COREPIPE = re.compile(r"corepipe[._].+[._]([0-9]+)")
FAULTY_S = 20
"""For the ranks of one arm, of which one does wrong."""
CSV = "--format=csv,noheader,nounits"


class Skip(Exception):
    """The ground for a check is missing here; the text says what."""


@dataclass(frozen=True)
class Check:
    name: str
    what: str
    function: Callable[[Bench], Measured]


ALL: list[Check] = []


def check(what: str) -> Callable[[Callable[[Bench], Measured]], Callable[[Bench], Measured]]:
    def register(function: Callable[[Bench], Measured]) -> Callable[[Bench], Measured]:
        ALL.append(Check(function.__name__, what, function))
        return function

    return register


# What checks share


def need_gpu(bench: Bench) -> str:
    if bench.python is None:
        raise Skip("no `python` with torch in the settings: nothing can hold GPU memory")
    return bench.python


def need_engine(bench: Bench) -> None:
    if bench.status().get("outcome") not in SERVES:
        raise Skip("the engine does not serve")


def need_ranks(bench: Bench) -> None:
    """A staged release of several ranks, and its GPUs free."""
    if int(bench.base.get("tensor_parallel", 1)) < 2:
        raise Skip("tensor_parallel is 1 in the settings: nothing is added up")
    status, text = bench.sglangctl("stop", ENGINE, timeout=180)
    if status != 0:
        raise Skip(f"the engine cannot be stopped: {text[-200:]}")


def put_files(bench: Bench) -> None:
    bench.host.exec("mkdir", "-p", FILES)
    sources = [HERE / "holder.py", HERE / "client.py", Path(shared.__path__[0]) / "title.py"]
    for source in sources:
        bench.host.exec("tee", f"{FILES}/{source.name}", input=source.read_text())


def port(bench: Bench) -> int:
    return int(bench.base.get("port", 30000))


def active(bench: Bench, unit: str) -> tuple[str, str]:
    """What systemd says of a unit: (ActiveState, UnitFileState)."""
    argv = ("systemctl", "show", "--value", "-p", "ActiveState", "-p", "UnitFileState", unit)
    lines = bench.host.exec(*argv).stdout.split("\n")
    return lines[0], lines[1]


def start_unit(bench: Bench, name: str, *argv: str) -> None:
    bench.host.exec("systemd-run", "--quiet", f"--unit={name}", "--collect", *argv)


def stop_unit(bench: Bench, name: str) -> None:
    bench.host.exec("systemctl", "stop", name, check=False, timeout=180)


def main_pid(bench: Bench) -> int:
    return int(bench.host.exec("systemctl", "show", "--value", "-p", "MainPID", UNIT).stdout)


def process(bench: Bench, title: str) -> int:
    """The pid of the engine's process with this title."""
    for line in bench.host.exec("ps", "-eo", "pid=,args=").stdout.splitlines():
        pid, _, command = line.strip().partition(" ")
        if command.strip().startswith(title):
            return int(pid)
    raise AssertionError(f"no process is called {title}")


def phases(deployed: Deployed) -> Measured:
    engine = deployed.engine
    return {
        "deploy_s": round(deployed.seconds, 1),
        "outcome": engine.get("outcome"),
        "cause": engine.get("cause"),
        "served_after_s": engine.get("served_after_s"),
        "phases": engine.get("phases"),
        # Of each GPU: what the engine took, and what the preflight had estimated.
        **({"memory": engine["memory"]} if engine.get("memory") else {}),
    }


def ready(bench: Bench, deployed: Deployed, *outcomes: str) -> Measured:
    assert deployed.status == 0, deployed.end()
    now = bench.status().get("outcome")
    assert now in (outcomes or ("ready",)), f"{now}: {deployed.end()}"
    return phases(deployed)


@contextmanager
def client(bench: Bench) -> Iterator[Callable[[], list[tuple[float, str]]]]:
    """A client that asks the engine's port all the time; gives a reader of (time, served model)."""
    file = f"{FILES}/client.log"
    start_unit(bench, "gpu-check-client", "python3", f"{FILES}/client.py", str(port(bench)), file)

    def answers() -> list[tuple[float, str]]:
        lines = bench.host.exec("cat", file).stdout.split("\n")
        pairs = [line.split(" ", 1) for line in lines if " " in line]
        return [(float(when), model) for when, model in pairs]

    try:
        time.sleep(1.5)  # its first answers lie before what comes
        yield answers
    finally:
        stop_unit(bench, "gpu-check-client")


def dark_s(answers: list[tuple[float, str]]) -> float:
    """The longest time between two answers with a model, in seconds."""
    times = [when for when, model in answers if model != "-"]
    return round(max((b - a for a, b in zip(times, times[1:])), default=0.0), 2)


def holder_serves(bench: Bench) -> None:
    """Another team's vLLM: a unit of its own, enabled, with memory on each GPU and the port."""
    python = need_gpu(bench)
    put_files(bench)
    bench.host.exec("sh", "-c", "id vllm >/dev/null 2>&1 || useradd --system --user-group vllm")
    unit = (
        "[Unit]\nDescription=a large model under vLLM's titles\n"
        "[Service]\nUser=vllm\nEnvironment=HOME=/tmp\nRestart=always\nRestartSec=3\n"
        f"ExecStart={python} {FILES}/holder.py {HOLDER_GIB} {port(bench)} VLLM::Worker_TP\n"
        "TimeoutStopSec=60\n[Install]\nWantedBy=multi-user.target\n"
    )
    bench.host.exec("tee", f"/etc/systemd/system/{HOLDER}", input=unit)
    bench.host.exec("systemctl", "daemon-reload")
    bench.host.exec("systemctl", "enable", "--quiet", "--now", HOLDER)
    await_memory(bench, HOLDER_GIB * 1024)
    await_port(bench, "kimi")


def await_memory(bench: Bench, mib: int) -> None:
    for _ in range(120):
        if min(used(bench)) >= mib:
            return
        time.sleep(0.5)
    raise AssertionError(f"not {mib} MiB on each GPU after 60 s: {used(bench)}")


def await_port(bench: Bench, model: str) -> None:
    code = "import client, sys; sys.exit(client.served(int(sys.argv[1])) != sys.argv[2])"
    for _ in range(120):
        argv = ("env", f"PYTHONPATH={FILES}", "python3", "-c", code, str(port(bench)), model)
        if bench.host.exec(*argv, check=False).returncode == 0:
            return
        time.sleep(0.5)
    raise AssertionError(f"{model} does not answer on port {port(bench)} after 60 s")


def used(bench: Bench) -> list[int]:
    """Memory used on each GPU in MiB, by nvidia-smi."""
    text = bench.host.exec("nvidia-smi", "--query-gpu=memory.used", CSV).stdout
    return [int(line) for line in text.split()]


def holder_untouched(bench: Bench) -> None:
    assert active(bench, HOLDER) == ("active", "enabled"), active(bench, HOLDER)
    await_port(bench, "kimi")


# The checks


@check(
    "another team's service holds every GPU: holders, nvidia-smi and fuser see the same processes"
)
def holders(bench: Bench) -> Measured:
    holder_serves(bench)
    refused = bench.deploy(replaces=None)
    assert refused.status != 0 and HOLDER in refused.text, refused.end()
    holder_untouched(bench)
    if bench.host.exec("sh", "-c", "command -v sglangctl", check=False).returncode != 0:
        raise Skip("no deploy has put sglangctl on the host yet: run this again after `deploy`")
    document = json.loads(bench.sglangctl("holders", "--json")[1])
    ours = {row["pid"]: row for row in document["holders"] if row["gpus"]}
    query = "--query-compute-apps=pid,used_memory"
    rows = bench.host.exec("nvidia-smi", query, CSV).stdout.splitlines()
    theirs = {int(row.split(",")[0]): int(row.split(",")[1]) for row in rows if row.strip()}
    missing = set(theirs) - set(ours)
    assert not missing, f"nvidia-smi shows {missing}, holders does not: {document}"
    done = bench.host.exec("sh", "-c", "fuser /dev/nvidia[0-9]* 2>/dev/null", check=False)
    opened = {int(pid) for pid in re.findall(r"\d+", done.stdout)}
    assert opened <= set(ours), f"fuser shows {opened - set(ours)}, holders does not"
    return {
        "holders": len(ours),
        "nvidia_smi": len(theirs),
        "fuser": len(opened),
        "used_mib": used(bench),
    }


@check("a release with a Python module missing: the service that held the GPUs serves on or again")
def module_missing(bench: Bench) -> Measured:
    need_gpu(bench)
    holder_untouched(bench)
    packages = [pin for pin in bench.base.get("install", {}).get("packages", [])]
    broken = [pin for pin in packages if not pin.startswith("gguf==")]
    if broken == packages:
        raise Skip("the base engine's install.packages do not name gguf")
    return {
        "refused": goes_back(bench, install={"packages": broken}),
        # As if the preflight did not see it: found after the service was stopped.
        "gone_back": goes_back(
            bench, install={"packages": broken}, preflight={"ignore": ["engine-imports"]}
        ),
    }


@check("too little memory for one request: the service that held the GPUs serves again")
def cache_too_small(bench: Bench) -> Measured:
    need_gpu(bench)
    holder_untouched(bench)
    return goes_back(bench, flags={"mem-fraction-static": 0.001})


def goes_back(bench: Bench, **changes: Any) -> Measured:
    with client(bench) as answers:
        failed = bench.deploy(replaces=[HOLDER], **changes)
        assert failed.status != 0, failed.end()
        holder_untouched(bench)
        seen = answers()
    await_memory(bench, HOLDER_GIB * 1024)
    models = {model for _, model in seen}
    assert models <= {"kimi", "-"}, models
    return {**phases(failed), "dark_s": dark_s(seen), "said": failed.end(12)}


@check("the deploy: the service is stopped, the engine is ready in its place")
def deploy(bench: Bench) -> Measured:
    put_files(bench)
    with client(bench) as answers:
        done = bench.deploy(replaces=[HOLDER])
        result = ready(bench, done)
        seen = answers()
    bench.keep_journal("gpu-deploy")
    assert bench.python is None or active(bench, HOLDER)[1] == "disabled", active(bench, HOLDER)
    return {**result, "dark_s": dark_s(seen), "used_mib": used(bench)}


@check("what the probe knows of the machine, against nvidia-smi")
def probe(bench: Bench) -> Measured:
    need_gpu(bench)
    begin = time.monotonic()
    document = json.loads(bench.sglangctl("probe")[1])
    seconds = time.monotonic() - begin
    gpus = document["gpus"]
    fields = "name,memory.total,driver_version,compute_cap,ecc.mode.current,persistence_mode"
    rows = bench.host.exec("nvidia-smi", f"--query-gpu={fields}", CSV).stdout.strip().splitlines()
    assert len(rows) == len(gpus), (rows, gpus)
    for row, gpu in zip(rows, gpus):
        name, total = [cell.strip() for cell in row.split(",")][:2]
        assert gpu["name"] == name, (gpu, row)
        assert abs(gpu["memory_total_mib"] - int(total)) <= 1024, (gpu, row)
    return {"seconds": round(seconds, 2), "nvidia_smi": rows, "gpus": gpus}


@check("the deploy once more: nothing changes")
def again(bench: Bench) -> Measured:
    need_engine(bench)
    pid = main_pid(bench)
    done = bench.deploy(replaces=[HOLDER])
    assert done.status == 0 and not done.changed, (done.changed, done.end())
    assert main_pid(bench) == pid
    return {"deploy_s": round(done.seconds, 1)}


@check("a changed NCCL value: planned, and live after a restart")
def nccl(bench: Bench) -> Measured:
    need_engine(bench)
    pid = main_pid(bench)
    change = {
        "nccl": {"overrides": {"NCCL_BUFFSIZE": 8388608}},
        # Pipes for core dumps in the cache folder, which killed_process looks for.
        "environment": {"CUDA_ENABLE_USER_TRIGGERED_COREDUMP": "1"},
    }
    with client(bench) as answers:
        result = ready(bench, bench.deploy(replaces=[HOLDER], **change))
        seen = answers()
    assert main_pid(bench) != pid
    environment = bench.host.exec("cat", f"/proc/{main_pid(bench)}/environ").stdout
    assert "NCCL_BUFFSIZE=8388608" in environment.split("\0")
    bench.keep_journal("gpu-nccl")
    return {**result, "dark_s": dark_s(seen)}


@check("repeated requests after ready start at once: nothing is compiled any more")
def first_token(bench: Bench) -> Measured:
    # An engine that serves and is not proven yet may be compiling: that is another figure.
    if bench.status().get("outcome") not in ("ready", "degraded"):
        raise Skip("the engine is not ready")
    body = {"text": "The quick brown fox. " * 40, "sampling_params": {"max_new_tokens": 8}}
    code = (
        "import json, sys, time, urllib.request\n"
        "for _ in range(3):\n"
        "    b = time.monotonic()\n"
        "    r = urllib.request.Request(sys.argv[1], sys.argv[2].encode(),"
        " {'Content-Type': 'application/json'})\n"
        "    urllib.request.urlopen(r, timeout=180).read()\n"
        "    print(round(time.monotonic() - b, 2))\n"
    )
    url = f"http://127.0.0.1:{port(bench)}/generate"
    text = bench.host.exec("python3", "-c", code, url, json.dumps(body), timeout=600).stdout
    seconds = [float(line) for line in text.split()]
    assert max(seconds) < 10, seconds
    return {"seconds": seconds}


@check("the watch's own processor time beside a serving engine")
def watch_cost(bench: Bench) -> Measured:
    need_engine(bench)
    unit = f"sglang-watch@{ENGINE}.service"

    def used_s() -> float:
        argv = ("systemctl", "show", "--value", "-p", "CPUUsageNSec", unit)
        text = bench.host.exec(*argv).stdout.strip()
        if not text.isascii() or not text.isdigit():
            raise Skip("systemd counts no processor time here")
        return int(text) / 1e9

    begin, before = time.monotonic(), used_s()
    time.sleep(20)
    percent = 100 * (used_s() - before) / (time.monotonic() - begin)
    assert percent < 10, percent
    return {"percent_of_a_core": round(percent, 2)}


@check("SIGSTOP of the scheduler and of the detokenizer: noticed, and over after SIGCONT")
def stopped_process(bench: Bench) -> Measured:
    need_engine(bench)
    result = {}
    for title in ("sglang::scheduler", "sglang::detokenizer"):
        pid = process(bench, title)
        bench.host.exec("kill", "-STOP", str(pid))
        try:
            noticed = bench.wait_until(("unresponsive",), 60)
        finally:
            bench.host.exec("kill", "-CONT", str(pid))
        result[title] = {"noticed_s": noticed, "over_s": bench.wait_until(SERVES, 60)}
    return result


def pipes(bench: Bench) -> set[int]:
    """The processes whose pipe for core dumps is in the engine's working folder."""
    folder = bench.host.exec(
        "systemctl", "show", "--value", "-p", "WorkingDirectory", UNIT
    ).stdout.strip()
    names = bench.host.exec("ls", folder).stdout.split()
    return {int(name[1]) for name in map(COREPIPE.fullmatch, names) if name}


@check(
    "kill -9 of the scheduler: noticed, restarted by systemd, ready again; its pipe for core dumps is gone"
)
def killed_process(bench: Bench) -> Measured:
    need_engine(bench)
    pid, scheduler = main_pid(bench), process(bench, "sglang::scheduler")
    before = pipes(bench)
    bench.host.exec("kill", "-KILL", str(scheduler))
    begin = time.monotonic()
    while main_pid(bench) in (pid, 0):
        assert time.monotonic() - begin < 120, "systemd did not start it again"
        time.sleep(0.2)
    restarted = round(time.monotonic() - begin, 1)
    bench.wait_until(("ready",), UP_S)
    bench.keep_journal("gpu-after-kill9-scheduler")
    now = pipes(bench)
    living = {int(line) for line in bench.host.exec("ps", "-eo", "pid=").stdout.split()}
    assert now <= living, f"pipes of processes that are gone: {now - living}"
    return {
        "restarted_s": restarted,
        "ready_s": round(time.monotonic() - begin, 1),
        "pipes": {"before": len(before), "of_the_killed": scheduler in before, "now": len(now)},
    }


@check("the installed kernel: inspected, and one operation run on the GPU")
def kernel(bench: Bench) -> Measured:
    need_engine(bench)
    inspected, text = bench.sglangctl(
        "kernel", "inspect", "installed", "--engine", ENGINE, "--json"
    )
    checked, verdict = bench.sglangctl("kernel", "check", "--engine", ENGINE, "--json", timeout=300)
    return {
        "inspect": inspected,
        "check": checked,
        "verdict": json.loads(text).get("verdict") if text.startswith("{") else text[-400:],
        "operation": json.loads(verdict) if verdict.startswith("{") else verdict[-400:],
    }


@check("a bundle of evidence, without the api key")
def bundle(bench: Bench) -> Measured:
    need_engine(bench)
    status, text = bench.sglangctl("bundle", ENGINE, "-o", "/tmp/gpu-check.tar.gz", timeout=300)
    assert status == 0, text
    names = bench.host.exec("tar", "-tzf", "/tmp/gpu-check.tar.gz").stdout.split()
    return {"files": len(names)}


@check("EAGLE-3 with a drafter of random weights: degraded, the accept length named")
def eagle_random(bench: Bench) -> Measured:
    need_gpu(bench)
    return drafted(bench, "eagle3", "EAGLE3", "gpu-eagle3", "degraded")


@check("STANDALONE with the target as its own drafter: the positive control of the accept length")
def standalone(bench: Bench) -> Measured:
    need_gpu(bench)
    result = drafted(bench, "target", "STANDALONE", "gpu-standalone", "ready")
    meta = generate(bench, {"temperature": 0, "max_new_tokens": 64, "ignore_eos": True})
    greedy = meta["completion_tokens"] / meta["spec_verify_ct"]
    assert greedy > 3, f"accept length {greedy:.2f} at temperature 0, of the same model"
    return {**result, "accept_length_greedy": round(greedy, 2)}


def generate(bench: Bench, sampling: dict[str, Any]) -> dict[str, Any]:
    """`meta_info` of one answer of the engine."""
    code = (
        "import json, sys, urllib.request\n"
        "r = urllib.request.Request(sys.argv[1], sys.argv[2].encode(),"
        " {'Content-Type': 'application/json'})\n"
        "print(json.dumps(json.load(urllib.request.urlopen(r, timeout=120))['meta_info']))\n"
    )
    body = json.dumps({"text": "The quick brown fox", "sampling_params": sampling})
    url = f"http://127.0.0.1:{port(bench)}/generate"
    return dict(json.loads(bench.host.exec("python3", "-c", code, url, body).stdout))


def drafted(bench: Bench, model: str, algorithm: str, trace: str, *outcomes: str) -> Measured:
    drafter = {
        "path": f"{bench.models}/{model}",
        "algorithm": algorithm,
        "steps": 3,
        "topk": 1,
        "draft_tokens": 4,
    }
    done = bench.deploy(replaces=[HOLDER], drafter=drafter)
    result = phases(done)
    bench.keep_journal(trace)
    now = bench.status()
    assert now.get("outcome") in outcomes, (now.get("outcome"), done.end())
    generate = now.get("generate") or done.engine.get("generate") or {}
    return {**result, "accept_length": generate.get("accept_length"), "generate": generate}


@check("hardening: strict serves")
def strict(bench: Bench) -> Measured:
    result = ready(bench, bench.deploy(replaces=[HOLDER], hardening="strict"))
    shown = bench.host.exec("systemd-analyze", "security", "--no-pager", UNIT, check=False).stdout
    return {**result, "exposure": shown.strip().split("\n")[-1]}


@check(
    "a model with a shard missing, then truncated: refused or gone back, the engine before serves"
)
def bad_shards(bench: Bench) -> Measured:
    need_engine(bench)
    bad = f"{bench.models}/broken"
    result = {}
    for kind, how in (("missing", "rm"), ("truncated", "truncate --size=1000000")):
        bench.host.exec("rm", "-rf", bad)
        bench.host.exec("cp", "-a", f"{bench.models}/target", bad)
        bench.host.exec("sh", "-c", f'{how} "$(ls {bad}/*.safetensors | sed -n 3p)"')
        pid = main_pid(bench)
        with client(bench) as answers:
            done = bench.deploy(replaces=[HOLDER], hardening="strict", model={"path": bad})
            seen = answers()
        assert done.status != 0, f"a {kind} shard was accepted: {done.end()}"
        bench.wait_until(("ready",), UP_S)
        result[kind] = {
            **phases(done),
            "restarted": main_pid(bench) != pid,
            "dark_s": dark_s(seen),
            "said": done.end(8),
        }
    bench.host.exec("rm", "-rf", bad)
    return result


@check("GPU memory of a service that nobody named: refused, nothing is touched")
def memory_taken(bench: Bench) -> Measured:
    need_engine(bench)
    python = need_gpu(bench)
    start_unit(bench, "gpu-check-torch", python, f"{FILES}/holder.py", str(TAKEN_GIB))
    try:
        await_memory(bench, TAKEN_GIB * 1024)
        return untouched(bench, "gpu-check-torch")
    finally:
        stop_unit(bench, "gpu-check-torch")


@check(
    "GPU memory of a process that cannot be seen (another PID namespace): refused, nothing is touched"
)
def memory_of_nobody(bench: Bench) -> Measured:
    need_engine(bench)
    python = need_gpu(bench)
    if not bench.outside:
        raise Skip("this machine is not outside of the host's PID namespace (settings: outside)")
    environment = {**os.environ, "PYTHONPATH": shared.__path__[0]}
    argv = [python, str(HERE / "holder.py"), str(TAKEN_GIB)]
    other = subprocess.Popen(argv, env=environment)
    try:
        await_memory(bench, TAKEN_GIB * 1024)
        return untouched(bench, "MiB on GPU")
    finally:
        other.terminate()
        other.wait(60)


def untouched(bench: Bench, named: str) -> Measured:
    """A deploy of a change is refused, names this, and the engine that serves goes on."""
    pid = main_pid(bench)
    change = {"overrides": {"NCCL_BUFFSIZE": 4194304}}
    done = bench.deploy(replaces=[HOLDER], nccl=change)
    assert done.status != 0 and named in done.text, done.end()
    assert main_pid(bench) == pid, "the engine was restarted"
    assert bench.status().get("outcome") in SERVES
    return {"refused_s": round(done.seconds, 1), "said": done.end(8)}


@check("a power cut: the engine serves again by itself")
def reboot(bench: Bench) -> Measured:
    need_engine(bench)
    if bench.reboot is None:
        raise Skip("no `reboot` command in the settings")
    subprocess.run(bench.reboot, check=True, timeout=120)
    begin = time.monotonic()
    bench.wait_until(("ready",), UP_S)
    return {"ready_s": round(time.monotonic() - begin, 1)}


@check("the port taken by another program: named")
def port_taken(bench: Bench) -> Measured:
    need_engine(bench)
    status, text = bench.sglangctl("stop", ENGINE, timeout=180)
    assert status == 0, text
    argv = ("python3", "-m", "http.server", str(port(bench)), "--bind", "127.0.0.1")
    start_unit(bench, "gpu-check-http", *argv)
    try:
        done = bench.deploy(replaces=[HOLDER])
        assert done.status != 0 and str(port(bench)) in done.text, done.end()
        return {**phases(done), "said": done.end(8)}
    finally:
        stop_unit(bench, "gpu-check-http")


@check(
    "a rank that adds up wrong, and one that is stopped in the middle: told apart, the GPUs free"
)
def collective_faults(bench: Bench) -> Measured:
    need_ranks(bench)
    manifest = bench.host.exec("cat", f"/var/lib/sglangctl/{ENGINE}/current/manifest.json").stdout
    site = bench.host.exec(
        "sh", "-c", 'echo "$1"/lib/python3*/site-packages', "-", json.loads(manifest)["venv"]
    ).stdout.strip()
    result = {}
    bench.host.exec("tee", f"{site}/torch.py", input=faulty_torch.SOURCE)
    try:
        for fault, status, outcome, words in (
            ("wrong", 1, "wrong", "1 of 1024 sums are wrong at 4096 bytes"),
            ("stop", 4, "hung", "rank 0 was past 1024 bytes; rank 1 was past 1024 bytes"),
        ):
            bench.host.exec("tee", faulty_torch.FAULT, input=fault)
            begin = time.monotonic()
            found = collective_said(bench, "--limit", str(FAULTY_S))
            seconds = round(time.monotonic() - begin, 1)
            assert (found[0], found[1]["outcome"]) == (status, outcome), found
            assert words in found[1]["lines"][0], found[1]["lines"]
            free = free_s(bench)
            result[fault] = {"seconds": seconds, "free_after_s": free, "lines": found[1]["lines"]}
            assert not found[1]["wedged"], found[1]["wedged"]
    finally:
        bench.host.exec("rm", "-f", f"{site}/torch.py", faulty_torch.FAULT)
    return result


@check("all-reduces over NCCL between the engine's GPUs, as configured and without peer-to-peer")
def collective(bench: Bench) -> Measured:
    need_ranks(bench)
    begin = time.monotonic()
    status, found = collective_said(bench)
    assert (status, found["outcome"]) == (0, "right"), found["lines"]
    assert {arm["outcome"] for arm in found["arms"]} == {"right"}, found["lines"]
    return {
        "seconds": round(time.monotonic() - begin, 1),
        **{key: found[key] for key in ("outcome", "key", "torch", "lines")},
    }


def collective_said(bench: Bench, *options: str) -> tuple[int, Measured]:
    status, text = bench.sglangctl("collective", ENGINE, "--json", *options, timeout=1800)
    assert status in (0, 1, 4), (status, text[-2000:])
    return status, json.loads(text)["collective"]


def free_s(bench: Bench) -> float:
    """Seconds until no GPU has memory in use or is busy, by nvidia-smi. Fails after 30."""
    begin = time.monotonic()
    while True:
        query = "--query-gpu=memory.used,utilization.gpu"
        rows = bench.host.exec("nvidia-smi", query, CSV).stdout.splitlines()
        cells = [[int(cell) for cell in row.split(",")] for row in rows]
        passed = round(time.monotonic() - begin, 1)
        if all(used < 2048 and busy == 0 for used, busy in cells):
            return passed
        assert passed < 30, f"not free: {rows}"
        time.sleep(0.2)


@check(
    "nccl.profile auto: the profile that proved right and fastest on these GPUs is planned, and serves"
)
def auto_profile(bench: Bench) -> Measured:
    need_ranks(bench)
    begin = time.monotonic()
    measured = bench.deploy("collective", replaces=[HOLDER])
    seconds = round(time.monotonic() - begin, 1)
    assert measured.status == 0 and "right" in measured.text, measured.end()
    kept = bench.sglangctl("collective", ENGINE, "--show", "--json")[1]
    arms = json.loads(kept)["collective"][-1]["arms"]
    auto = {"profile": "auto"}
    planned = bench.deploy(dry=True, replaces=[HOLDER], nccl=auto)
    said = [line.strip() for line in planned.text.splitlines() if "profile auto" in line]
    assert planned.status == 0 and said, planned.end()
    result = ready(bench, bench.deploy(replaces=[HOLDER], nccl=auto))
    return {
        **result,
        "measured_s": seconds,
        "arms": {arm["name"]: arm["sentence"] for arm in arms},
        "planned": said,
    }


@check("removed: the GPUs are free, nothing of the engine is left")
def remove(bench: Bench) -> Measured:
    if bench.status().get("outcome") not in SERVES:
        ready(bench, bench.deploy(replaces=[HOLDER]))
    stopped = time.monotonic()
    done = bench.deploy("remove")
    assert done.status == 0, done.end()
    seconds = time.monotonic() - stopped
    assert bench.python is None or max(used(bench)) < 2048, used(bench)
    assert active(bench, UNIT)[0] == "inactive"
    return {"seconds": round(seconds, 1), "used_mib": used(bench)}
