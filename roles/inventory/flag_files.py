"""Files that flags name: on the host by an absolute path, or shipped with the release.

`chat-template: {file: templates/kimi.jinja}` is a file of the controller. It becomes a file of the
release, so that another text is another release, and the flag gets its path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any

from roles.inventory.errors import Path, shown
from roles.inventory.names import names
from roles.inventory.reading import UnreadableFile, expanded, read_regular
from roles.inventory.schema import Report

LARGEST = 1024 * 1024
"""Bytes of a file that is shipped."""


SHIPPABLE = names(
    "chat-template completion-template deepep-config dllm-algorithm-config flexkv-config-file "
    "hicache-storage-backend-extra-config init-expert-location lmcache-config-file "
    "msprobe-dump-config pdmux-config-path quantization-param-path speculative-adaptive-config "
    "speculative-dspark-confidence-sts-path speculative-dspark-sps-table-path "
    "speculative-ngram-external-corpus-path ssl-ca-certs ssl-certfile watermark-config"
)
"""Flags with a text file."""
ON_HOST = SHIPPABLE | names(
    "decrypted-config-file decrypted-draft-config-file kt-weight-path lora-paths "
    "modelopt-checkpoint-restore-path speculative-token-map ssl-keyfile tokenizer-path uno-lora-path"
)
"""Flags with a file or folder that the engine reads."""
WITH_NAMES = names("chat-template completion-template init-expert-location")
"""They also take the name of something built in: a word without a slash or an ending."""
WITH_JSON = names(
    "deepep-config hicache-storage-backend-extra-config init-expert-location watermark-config "
    "lora-paths"
)
"""They also take a mapping; that of lora-paths is told by contradictions.py."""
MARK = {"hicache-storage-backend-extra-config": "@"}
"""What SGLang wants before the path, where the flag also takes a text."""


def is_shipped(name: str, value: Any) -> bool:
    """Whether a flag's value is {file: ...} of the controller."""
    return name in SHIPPABLE and isinstance(value, dict) and set(value) == {"file"}


def check(flags: Mapping[str, Any], report: Report) -> None:
    """Report files that no host could find."""
    for name, value in flags.items():
        if is_shipped(name, value):
            if not (isinstance(value["file"], str) and value["file"]):
                report(("flags", name, "file"), shown(value["file"]), "a path", None)
            continue
        if isinstance(value, dict) and name in ON_HOST - WITH_JSON:
            allowed = "a path" + (" or {file: PATH}" if name in SHIPPABLE else "")
            report(("flags", name), "a mapping", allowed, None)
        for inner, path in _paths(name, value):
            if not path.startswith("/") or ".." in path.split("/"):
                allowed = "an absolute path on the host, without .."
                if name in SHIPPABLE:
                    allowed += ", or {file: PATH} for a file of the controller"
                elif name in ("lora-paths", "tokenizer-path"):
                    allowed += " (nothing is downloaded)"
                report(("flags", name, *inner), shown(path), allowed, None)


def on_host(flags: Mapping[str, Any]) -> tuple[str, ...]:
    """The absolute paths of the host that an engine's flags name."""
    found = {path for name, value in flags.items() for _, path in _paths(name, value)}
    return tuple(sorted(path for path in found if path.startswith("/")))


def _paths(name: str, value: Any) -> Iterator[tuple[Path, str]]:
    """(place within the value, path) of what a flag names."""
    if name == "lora-paths":
        for index, item in enumerate(value if isinstance(value, list) else [value]):
            where: Path = (index,) if isinstance(value, list) else ()
            if isinstance(item, dict) and isinstance(item.get("lora_path"), str):
                yield (*where, "lora_path"), item["lora_path"]
            elif isinstance(item, str) and not item.lstrip().startswith("{"):
                # <PATH> or <NAME>=<PATH>, as SGLang splits it.
                yield where, item.partition("=")[2] if "=" in item else item
    elif name in ON_HOST and isinstance(value, str) and value:
        mark = MARK.get(name, "")
        is_text = value.lstrip().startswith(("{", "[")) or not value.startswith(mark)
        is_name = name in WITH_NAMES and "/" not in value and "." not in value
        if not is_text and not is_name:
            yield (), value.removeprefix(mark)


def shipped_name(name: str, path: str) -> str:
    """The file's name in the release; its ending tells SGLang what it is (.jinja, .json)."""
    ending = FilePath(path).suffix
    plain = ending[1:].isascii() and ending[1:].isalnum() and len(ending) <= 16
    return f"flag-{name}{ending if plain else ''}"


def value_of(name: str, path: str, folder: str) -> str:
    """What the flag gets for a shipped file in `folder`."""
    return f"{MARK.get(name, '')}{folder}/{shipped_name(name, path)}"


def read(flags: Mapping[str, Any], folder: FilePath, report: Report) -> dict[str, bytes]:
    """Flag -> content of the files of the controller; those that cannot be read are reported."""
    found: dict[str, bytes] = {}
    for name, value in flags.items():
        if not is_shipped(name, value):
            continue
        where: Path = ("flags", name, "file")
        try:
            content = read_regular(folder / expanded(value["file"]), LARGEST)
            content.decode("utf-8")
        except FileNotFoundError:
            why = "is not there"
        except UnicodeDecodeError:
            why = "is not UTF-8 text"
        except UnreadableFile as error:
            why = str(error)
        else:
            found[name] = content
            continue
        path = shown(str(folder / value["file"]))
        report(where, f"{path}, which {why}", "a text file on the controller", None)
        found[name] = b""
    return found
