"""A build on its host, followed from the controller; and its wheel on the way to the fleet."""

from __future__ import annotations

import json

from pyinfra.api import Host, State

from roles.inventory.model import Patch
from roles.remote.failing import HostFailed, say
from roles.sgl_kernel import fleet
from roles.sgl_kernel.kernel_host import CACHE, KernelHost
from sglangctl.sgl_kernel import cache
from sglangctl.sgl_kernel.build.record import line
from sglangctl.sgl_kernel.build.request import BUILDER, Request, dump
from sglangctl.state import journal
from sglangctl.systemd.unit_names import build_unit

PACKAGES = (
    *("build-essential", "git", "ccache", "python3-dev", "python3-venv"),
    *("libnuma-dev", "libibverbs-dev"),
)
"""Up to 0.3.x mscclpp needs libnuma; ccache makes a build after a small patch short."""
INSTALL = (
    'command -v apt-get >/dev/null || exit 0; dpkg -s "$@" >/dev/null 2>&1 && exit 0; '
    "export DEBIAN_FRONTEND=noninteractive; apt-get update -q && "
    'apt-get install -q -y --no-install-recommends "$@"'
)
RESTARTS = 3
"""How often a build that ended silently (kill -9, a reboot) is started again."""


def build_host(state: State, own: Host, name: str | None) -> Host:
    """The host that builds; HostFailed when it does not take part in this run."""
    if name is None or name == own.name:
        return own
    found = state.inventory.get_host(name, default=None)
    if found is None or found not in state.active_hosts:
        raise HostFailed(
            f"kernel.build_host {name} does not take part in this run (or has failed): deploy "
            "without --limit, or name another one"
        )
    return found


def build(remote: KernelHost, request: Request, patches: tuple[Patch, ...], told: Host) -> None:
    """Start the build (or find it running) and follow it to its end on `told`'s screen.

    HostFailed has the build's own sentence and its next step.
    """
    root = f"{CACHE}/.build/{request.key}"
    _system_packages(remote)
    for number, patch in enumerate(patches):
        remote.put(f"{root}/patches/{number:02d}-{_safe(patch.name)}", patch.content)
    remote.put(f"{root}/request.json", dump(request).encode(), "0600")
    for _ in range(RESTARTS):
        started = remote.ask("build", f"{root}/request.json")
        if started.status:
            raise HostFailed(f"the build does not start on {remote.host.name}: {started.text}")
        say(told, f"kernel build {request.key} on {remote.host.name}: {started.text}")
        end = follow(remote, request.key, told)
        if end is None:
            remote.warn("the build ended without a result (killed, or a reboot): continuing it")
            continue
        if end.get("outcome") != "built":
            raise HostFailed(
                f"the kernel build on {remote.host.name} failed: {end.get('text')}\n"
                f"next: {end.get('next_step')}\nits log: {root}/{BUILDER}/build.log"
            )
        return
    raise HostFailed(
        f"the kernel build on {remote.host.name} ended {RESTARTS} times without a result; its log: "
        f"{root}/{BUILDER}/build.log; journalctl -u {build_unit(request.key)} and dmesg there may say why"
    )


def follow(remote: KernelHost, key: str, told: Host) -> journal.Event | None:
    """Print the build's events as they come; its last one, None when it ended silently."""
    end: journal.Event | None = None

    def tell(event: journal.Event) -> None:
        nonlocal end
        if event.get("step") == "end":
            end = event
        else:
            say(told, f"  {line(event)}")

    remote.follow("build", f"--follow={key}", each=tell)
    return end


def collect(remote: KernelHost, key: str, folder: str) -> cache.Entry:
    """Bring a built wheel from its host into the controller's cache; HostFailed."""
    there = fleet.find(folder, key)
    if there is not None:
        return there
    shown = remote.step("provenance", ["cat", "--", f"{CACHE}/{key}/{cache.PROVENANCE}"], 60)
    if shown.status:
        raise HostFailed(f"{remote.host.name} has no kernel {key}: {shown.text}")
    provenance = ("\n".join(shown.lines) + "\n").encode()
    try:
        return fleet.add(
            folder,
            key,
            provenance,
            lambda name, target: remote.fetch(f"{CACHE}/{key}/{name}", target),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise HostFailed(
            f"the kernel {key} cannot be put into {folder} on the controller: {error}; it is whole "
            f"on {remote.host.name}"
        ) from None


def distribute(remote: KernelHost, entry: cache.Entry) -> None:
    """Put a wheel of the controller's cache into a host's; HostFailed."""
    incoming = f"{CACHE}/.incoming-{entry.key}"
    remote.put(f"{incoming}/{cache.PROVENANCE}", json.dumps(entry.provenance, indent=1).encode())
    remote.send(entry.wheel, f"{incoming}/{entry.wheel.name}")
    ended = remote.work(f"kernel {entry.key}", "build", f"--adopt={incoming}", limit_s=600)
    if ended.status:
        raise HostFailed(f"the kernel {entry.key} did not arrive: {ended.text}")


def _system_packages(remote: KernelHost) -> None:
    ended = remote.step(
        "packages for the build", ["sh", "-c", INSTALL, "sh", *PACKAGES], limit_s=1800
    )
    if ended.status:
        raise HostFailed(f"apt-get cannot install {' '.join(PACKAGES)}: {ended.text[-400:]}")


def _safe(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name)
