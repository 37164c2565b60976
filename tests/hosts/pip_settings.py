"""Hand this machine's pip configuration to a container: indexes, local wheels, constraints, CA, proxy.

A deploy installs packages on the host it deploys to. A container host is new and knows nothing of
the index, proxy or certificate authority that this machine needs to reach one, so it gets them: an
/etc/pip.conf with the effective settings, the CA bundle, and read-only mounts of local folders.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Where files that cannot keep their path (a constraint file in /etc, say) lie in the container.
FOLDER = "/usr/local/share/controller-pip"

# The settings that say where packages come from and how to get there. Others (a target folder, a
# log file, "require-virtualenv") are this machine's own business.
KEYS = (
    "index-url",
    "extra-index-url",
    "no-index",
    "find-links",
    "constraint",
    "cert",
    "client-cert",
    "proxy",
    "trusted-host",
    "timeout",
    "retries",
)
CERT_VARIABLES = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
PROXY_VARIABLES = ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY")


@dataclass(frozen=True)
class PipSettings:
    """What a container needs so that pip works in it as it does here."""

    config: str  # text of /etc/pip.conf
    files: tuple[tuple[Path, str], ...]  # (file here, path in the container): copied
    mounts: tuple[tuple[Path, str], ...]  # (folder here, path in the container): bound read-only


def effective() -> PipSettings:
    """The settings pip has here, from its files and its environment, ready for a container."""
    return translate(_pip_config_list(), dict(os.environ))


def _pip_config_list() -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    # A Python without pip (Debian's own before python3-pip) has no settings either.
    return done.stdout if done.returncode == 0 else ""


def translate(listing: str, environment: dict[str, str]) -> PipSettings:
    """Turn the lines of `pip config list` into a configuration for a container.

    Lines read `global.find-links='/wheels'`; those of the environment (`:env:.find-links=`) come
    first and win, as they do in pip.
    """
    values: dict[str, str] = {}
    for line in listing.splitlines():
        name, equals, raw = line.partition("=")
        section, _, key = name.rpartition(".")
        if not equals or section not in (":env:", "global", "install"):
            continue
        if key == "default-timeout":
            key = "timeout"
        if key in KEYS and (key not in values or section == ":env:"):
            values[key] = _unquote(raw)
    if "cert" not in values:
        cert = next((environment[v] for v in CERT_VARIABLES if environment.get(v)), "")
        if cert:
            values["cert"] = cert
    if "proxy" not in values:
        proxy = next((environment[v] for v in PROXY_VARIABLES if environment.get(v)), "")
        if proxy:
            values["proxy"] = proxy

    files: list[tuple[Path, str]] = []
    mounts: dict[Path, str] = {}
    lines = ["[global]"]
    for key in KEYS:
        if key not in values:
            continue
        words = []
        for word in values[key].split():
            path = _local_path(word)
            if path is None:
                words.append(word)
            elif path.is_dir():
                # An index refers to its files by relative links that may leave its own folder.
                folder = path.parent if key.endswith("index-url") else path
                mounts[folder] = str(folder)
                words.append(word)
            elif path.is_file():
                target = f"{FOLDER}/{len(files)}-{path.name}"
                files.append((path, target))
                words.append(target)
        if words:
            lines.append(f"{key} = " + "\n    ".join(words))
    return PipSettings("\n".join(lines) + "\n", tuple(files), tuple(mounts.items()))


def _unquote(raw: str) -> str:
    """pip prints values as Python strings: 'a b', with newlines between the entries of a list."""
    try:
        text = shlex.split(raw)[0]
    except (ValueError, IndexError):
        return raw
    return text.replace("\\n", " ")


def _local_path(word: str) -> Path | None:
    if word.startswith("file:"):
        return Path(unquote(urlsplit(word).path))
    return Path(word) if word.startswith("/") else None
