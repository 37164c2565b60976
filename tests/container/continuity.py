"""What must go on while an engine is replaced: its answers, and the host's systemd."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import requests

from tests.hosts.host import Host


@contextmanager
def answered(url: str) -> Iterator[list[int]]:
    """A client that asks `url` once a second: the status of each answer, 0 for none."""
    statuses: list[int] = []
    over = threading.Event()

    def ask() -> None:
        while not over.wait(1.0):
            try:
                statuses.append(requests.get(url, timeout=10).status_code)
            except requests.RequestException:
                statuses.append(0)

    client = threading.Thread(target=ask)
    client.start()
    try:
        yield statuses
    finally:
        over.set()
        client.join()


def systemd(host: Host) -> str:
    """When the host's systemd was started, in ticks. After an abort it answers nothing, or it is another
    one."""
    host.exec("systemctl", "show", "--property=Version")
    return host.exec("cut", "-d ", "-f22", "/proc/1/stat").stdout
