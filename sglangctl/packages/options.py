"""Arguments of `pip install`, and pip's settings, for what is not `pip install`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sglangctl.util import lazy_re

INSTALL_ALONE = frozenset(
    [
        *("--user", "--force-reinstall", "--ignore-installed", "--upgrade", "-U", "-I"),
        *("--compile", "--no-compile", "--dry-run", "--no-warn-script-location"),
        *("--no-warn-conflicts", "--break-system-packages"),
    ]
)
"""Options without a value that only `pip install` has."""
INSTALL_VALUED = frozenset(
    [
        *("--target", "-t", "--prefix", "--root", "--report", "--upgrade-strategy"),
        "--root-user-action",
    ]
)
SOURCES = ("-i", "--index-url", "--extra-index-url", "-f", "--find-links")
"""Options of pip that name where packages come from: uv has the same ones."""
ALONE = {"--no-index": "--no-index", "--pre": "--prerelease=allow"}
HARMLESS = lazy_re.compile(
    r"--(?:no-cache-dir|no-compile|quiet|timeout|retries|proxy|trusted-host|cert)"
)
"""They do not decide what is chosen."""
SETTINGS = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
    "trusted-host": "UV_INSECURE_HOST",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "retries": "UV_HTTP_RETRIES",
}
"""Settings of pip -> uv's variables. As variables, because an index may have a password in its name."""
OFF = ("0", "false", "no", "off")


class Unknown(ValueError):
    """An argument of pip whose meaning for uv is not known."""


def for_download(arguments: Sequence[str]) -> tuple[str, ...]:
    """Without what only `pip install` understands: `pip download` ends over that."""
    found = []
    given = iter(arguments)
    for argument in given:
        name, equals, _ = argument.partition("=")
        if name in INSTALL_VALUED and not equals:
            next(given, None)
        elif name not in INSTALL_ALONE and name not in INSTALL_VALUED:
            found.append(argument)
    return tuple(found)


def for_uv(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """(arguments, variables) of uv with the same meaning; Unknown."""
    found: list[str] = []
    said: dict[str, str] = {}
    given = iter(arguments)
    for argument in given:
        name, equals, value = argument.partition("=")
        if name in SOURCES:
            found += [argument] if equals else [argument, next(given, "")]
        elif argument in ALONE:
            found.append(ALONE[argument])
        elif not HARMLESS.fullmatch(name):
            raise Unknown(argument)
        elif name[2:] in SETTINGS:
            value = value if equals else next(given, "")
            several = name == "--trusted-host" and "trusted-host" in said
            said[name[2:]] = f"{said['trusted-host']} {value}" if several else value
    return found, variables(said)


def variables(settings: Mapping[str, str]) -> dict[str, str]:
    """uv's variables for settings of pip; those that it has none for are left out."""
    found = {}
    for name, value in settings.items():
        if name not in SETTINGS or not value.strip():
            continue
        if name == "no-index":
            if value.strip().lower() in OFF:
                continue
            value = "1"
        found[SETTINGS[name]] = ("," if name == "find-links" else " ").join(value.split())
    return found
