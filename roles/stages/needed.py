"""What a deploy runs on a host, and where it writes: what the probe is asked for."""

from __future__ import annotations

PROGRAMS = {
    "chmod": "coreutils",
    "chown": "coreutils",
    "find": "findutils",
    "flock": "util-linux",
    "getent": "libc-bin",
    "logrotate": "logrotate",
    "systemd-analyze": "systemd",
    "systemd-run": "systemd",
    "timeout": "coreutils",
    "useradd": "passwd",
}
"""What a deploy runs on the host -> the Debian package that has it."""
PLACES = (
    "/etc/sglangctl",
    "/etc/systemd/system",
    "/opt/sglang/venvs",
    "/usr/local/bin",
    "/usr/local/lib/sglangctl",
    "/var/cache/sglang",
    "/var/lib/sglangctl",
    "/var/log/sglang",
)
"""Where a deploy writes."""
