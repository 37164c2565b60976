"""`make demo`: the main job, end to end, on a host that runs in a container on this machine.

A Debian host whose GPUs (make-believe device nodes) another team's vLLM holds; one deploy later
SGLang serves in its place: the real engine, on the processor, with a tiny model. Run again, it
shows that a second deploy changes nothing.
"""

from __future__ import annotations

import errno
import json
import os
import pty
import re
import subprocess
import sys
import time
import tty
import urllib.request
from pathlib import Path
from typing import Any

from tests.hosts import images
from tests.hosts.host import Host
from tests.hosts.say import ROOT, Failure, main_guard, output, say
from tests.hosts.standins.install import install_into, vllm_settings

NAME = "sglang-demo"
ENGINE = "tiny"
INVENTORY = Path("inventory/container.yml")
PORT = 8000
GPUS = 2
OLD_SERVICE = "vllm-kimi.service"
OLD_START_S = 60.0
QUESTION = "What is the capital of France?"


def main() -> int:
    begin = time.monotonic()
    host, new = prepare()
    say("")
    if new:
        say(f"==> Before the deploy, on the host {NAME}")
        show_before(host)
    say("")
    command = ["pyinfra", "inventory.py", "deploys/sglang.py", "-y"]
    say(f"==> SGLANG_INVENTORY={INVENTORY} {' '.join(command)}")
    deploy_begin = time.monotonic()
    status, shown = deploy()
    seconds = time.monotonic() - deploy_begin
    say("")
    if status != 0:
        raise Failure(
            f"the deploy ended with exit status {status} after {seconds:.0f} s: its own lines above"
            f" say why; look around on the host with: {ssh_command(host)}"
        )
    show_after(host, new, changed(shown), seconds, time.monotonic() - begin)
    return 0


def prepare() -> tuple[Host, bool]:
    """The demo's host, and whether it was made just now."""
    host = Host.find(NAME)
    if host is not None and runs_current_image(host):
        say(f"==> The host {NAME} is there already: deploying to it once more")
        return host, False
    say(f"==> Starting the host {NAME}: systemd, sshd, {GPUS} make-believe GPUs")
    host = Host.create(NAME, image="engine", gpus=GPUS)
    say("==> Starting another team's vLLM on it (a stand-in that holds the GPUs and the port)")
    install_into(host, gpus=GPUS)
    settings = vllm_settings(GPUS=GPUS, PORT=PORT)
    host.copy_in(settings.encode(), "/etc/default/vllm-kimi")
    host.exec("systemctl", "enable", "--quiet", "--now", OLD_SERVICE)
    deadline = time.monotonic() + OLD_START_S
    while not served_models(host):
        if time.monotonic() > deadline:
            log = host.exec("journalctl", "-u", OLD_SERVICE, "-n5", "--no-pager").stdout
            raise Failure(f"the vLLM stand-in does not answer after {OLD_START_S:.0f} s:\n{log}")
        time.sleep(0.5)
    return host, True


def runs_current_image(host: Host) -> bool:
    wanted = output(["docker", "image", "inspect", "-f", "{{.Id}}", images.ensure("engine")])
    return output(["docker", "container", "inspect", "-f", "{{.Image}}", host.name]) == wanted


def deploy() -> tuple[int, str]:
    """pyinfra as a person runs it: its exit status and what it printed, shown as it comes."""
    terminal = sys.stdout.isatty()
    # A terminal of its own, where there is one: colours and the spinner stay.
    ours, theirs = pty.openpty() if terminal else os.pipe()
    if terminal:
        tty.setraw(theirs)  # the real terminal turns a newline into its two characters
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "pyinfra", "inventory.py", "deploys/sglang.py", "-y"],
            cwd=ROOT,
            env={**os.environ, "SGLANG_INVENTORY": str(INVENTORY)},
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        shown = bytearray()
        while piece := _read(ours):
            shown += piece
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
        return process.wait(), shown.decode("utf-8", "replace")
    finally:
        os.close(ours)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError as error:
        if error.errno == errno.EIO:  # how Linux says that the last writer of a terminal is gone
            return b""
        raise


def changed(shown: str) -> int:
    """Operations that changed something, from the last line of pyinfra's table of results."""
    plain = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", shown)
    totals = re.findall(r"Grand total\s+\d+\s+(\d+|-)", plain)
    if not totals:
        raise Failure("pyinfra printed no table of results, so what it changed is not known")
    return 0 if totals[-1] == "-" else int(totals[-1])


def show_before(host: Host) -> None:
    units = host.exec("systemctl", "is-active", OLD_SERVICE, check=False).stdout.strip()
    say(f"    {OLD_SERVICE} is {units} and serves {', '.join(served_models(host))} on port {PORT}")
    for line in host.exec("nvidia-smi", "-L").stdout.splitlines():
        say(f"    {line}")
    query = ["nvidia-smi", "--query-compute-apps=pid,process_name,used_memory", "--format=csv"]
    for line in host.exec(*query).stdout.splitlines():
        say(f"    {line}")


def show_after(host: Host, new: bool, changes: int, deploy_s: float, all_s: float) -> None:
    engine = status_of(host)
    say(f"==> {ENGINE} on {NAME}: {engine['outcome']}")
    for phase, seconds in engine["phases"].items():
        say(f"    {phase:<12} {seconds:6.1f} s")
    if new:
        old = host.exec("systemctl", "is-active", OLD_SERVICE, check=False).stdout.strip()
        say(f"    {OLD_SERVICE} is {old}")
    what = f"{changes} operations changed the host" if changes else "Nothing changed"
    say(f"    {what}; the deploy took {deploy_s:.0f} s, all in all {all_s:.0f} s")
    say("")
    say(f"==> The model, asked {QUESTION!r}")
    say(f"    {generate(host)!r}")
    say("")
    say("==> Look around")
    say(f"    {ssh_command(host)}")
    say(
        f"    {ssh_command(host)} sglangctl status          (also: holders, logs {ENGINE}, verify {ENGINE})"
    )
    say(f"    curl -s {url(host)}/v1/chat/completions -H 'Content-Type: application/json' \\")
    say(f"        -d '{json.dumps(question())}'")
    say("    make demo          once more: a second deploy changes nothing")
    say("    make clean-demo    to take the host away")


def ssh_command(host: Host) -> str:
    return f"ssh -F {os.path.relpath(host.ssh_config)} {NAME}"


def url(host: Host) -> str:
    return f"http://{host.ip}:{PORT}"


def served_models(host: Host) -> list[str]:
    """What answers on the port says that it serves; empty where nothing answers."""
    try:
        document = request(host, "/v1/models")
    except OSError:
        return []
    return [str(model["id"]) for model in document["data"]]


def status_of(host: Host) -> dict[str, Any]:
    done = host.exec("sglangctl", "status", ENGINE, "--json", check=False)
    try:
        engines = json.loads(done.stdout)["status"]
        return next(engine for engine in engines if engine["name"] == ENGINE)
    except (ValueError, KeyError, StopIteration):
        raise Failure(f"sglangctl status says nothing of {ENGINE}: {done.stderr}") from None


def question() -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 32}


def generate(host: Host) -> str:
    document = request(host, "/v1/chat/completions", {**question(), "temperature": 0})
    return str(document["choices"][0]["message"]["content"])


def request(host: Host, path: str, body: dict[str, Any] | None = None) -> Any:
    """A JSON answer of the host's service. Raises OSError where it does not answer."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    asked = urllib.request.Request(url(host) + path, data=data, headers=headers)
    # Never through a proxy: the host is on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(asked, timeout=60) as answer:
        return json.load(answer)


if __name__ == "__main__":
    main_guard(main)
