"""Is the model in a folder whole? The index against the files, each file's header, and the small
files that an engine reads beside them. Reads headers only: 64 files of 547 GB take as long as 64 of
1 MB."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sglangctl.diagnosis.finding import FAIL, INFO, WARN, Finding
from sglangctl.util.plain_files import descriptor
from sglangctl.util.values import mapping, whole
from sglangctl.weights import access, needs, safetensors
from sglangctl.weights.contents import Contents, look
from sglangctl.weights.safetensors import Damaged, Header, shown

READERS = 8
"""Files whose headers are read at once: a cold disk or NFS is waited for, not computed."""
LARGEST_JSON = 64 * 1024 * 1024
"""Bytes of a JSON file that are parsed: the largest known tokenizer.json has 33 MB."""
LARGEST_CONFIG = 4 * 1024 * 1024
"""Bytes of a config.json that are kept."""
NAMED = 3
"""Missing tensors or files that a sentence names; the rest is counted."""
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tiktoken.model", "vocab.json", "tekken.json")
TEMPLATES = ("chat_template.jinja", "chat_template.json")
AGAIN = "download it again: its source has the complete file"


@dataclass
class Model:
    """What was found out about one folder."""

    path: str
    files: int = 0
    """Weight files that were read."""
    bytes: int = 0
    """Of their tensors."""
    tensors: int = 0
    config: str = ""
    """The text of config.json, for what else is asked of it; as text, since what is nested deep can be
    read and not written."""
    findings: list[Finding] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return not any(finding.level == FAIL for finding in self.findings)


def check(folder: Path, *, tokenizer: bool = True) -> Model:
    """Everything about the model in `folder`, as the current user sees it.

    `tokenizer`: the engine takes the tokenizer from here (a drafter needs none). Raises nothing:
    what cannot be read is a finding.
    """
    model = Model(str(folder))
    try:
        contents = look(folder)
    except OSError as error:
        model.findings.append(_no_folder(folder, error))
        return model
    config = _config(contents, model)
    _check_unfinished(contents, model.findings)
    if contents.safetensors or contents.index:
        _check_safetensors(contents, model, config)
    elif contents.other_formats:
        model.files = len(contents.other_formats)
        model.findings.append(
            Finding(
                "weights-format",
                INFO,
                f"the weights are not safetensors ({shown(contents.other_formats[0])}): whether "
                "they are whole cannot be told from their headers",
            )
        )
    else:
        model.findings.append(
            Finding("weights-missing", FAIL, f"no weights are in {shown(str(folder))}", AGAIN)
        )
    if tokenizer:
        _check_tokenizer(contents, model.findings)
    return model


def _no_folder(folder: Path, error: OSError) -> Finding:
    if isinstance(error, FileNotFoundError) and not folder.is_absolute():
        return Finding(
            "weights-missing",
            FAIL,
            f"{shown(str(folder))} is not a folder of this host",
            "if it is a name on a hub: download it, and name the folder",
        )
    if isinstance(error, FileNotFoundError) and not os.path.islink(folder):
        return Finding(
            "weights-missing",
            FAIL,
            f"{shown(str(folder))} is not on the host",
            "put the model there, or correct the path",
        )
    if isinstance(error, NotADirectoryError):
        return Finding("weights-missing", FAIL, f"{shown(str(folder))} is not a folder", "")
    return access.refusal(folder, error)


def _config(contents: Contents, model: Model) -> dict[str, Any]:
    findings, data = model.findings, _data(contents, "config.json", model.findings)
    if data is not None and len(data) <= LARGEST_CONFIG:
        model.config = data.decode("utf-8", "replace")
    config = _object("config.json", data, findings)
    if config is None:
        if "config.json" not in contents.names:
            findings.append(
                Finding("model-config", FAIL, "config.json is missing in the model's folder", AGAIN)
            )
        return {}
    named = config.get("architectures")
    if not (isinstance(named, list) and named and all(isinstance(one, str) for one in named)):
        findings.append(Finding("model-config", WARN, "config.json names no architecture", AGAIN))
    return config


def _json(contents: Contents, name: str, findings: list[Finding]) -> dict[str, Any] | None:
    """A JSON object of the folder; None with a finding where it is none, without where it is not
    there."""
    return _object(name, _data(contents, name, findings), findings)


def _data(contents: Contents, name: str, findings: list[Finding]) -> bytes | None:
    if name not in contents.names:
        return None
    path = contents.folder / name
    try:
        with open(descriptor(path), "rb") as file:
            data = file.read(LARGEST_JSON + 1)
    except OSError as error:
        findings.append(access.refusal(path, error))
        return None
    return data if len(data) <= LARGEST_JSON else None


def _object(name: str, data: bytes | None, findings: list[Finding]) -> dict[str, Any] | None:
    if data is None:
        return None
    try:
        # As engines read them: not with the mark of an editor before it, nor in UTF-16.
        document = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        said = "is empty" if not data else "is incomplete, or not JSON in UTF-8"
        if data.startswith(safetensors.POINTER):
            said = "is a Git LFS pointer, not the file: git lfs pull"
        findings.append(Finding("weights-corrupt", FAIL, f"{name} {said}", AGAIN))
        return None
    if not isinstance(document, dict):
        findings.append(Finding("weights-corrupt", FAIL, f"{name} is not a JSON object", AGAIN))
        return None
    return document


def _check_unfinished(contents: Contents, findings: list[Finding]) -> None:
    for name in contents.unfinished:
        whole = name.rsplit(".", 1)[0]
        # aria2 writes into the file itself, in any order: it has its full size with holes in it.
        beside = name.endswith(".aria2") and whole in contents.names
        findings.append(
            Finding(
                "weights-unfinished",
                FAIL if beside else WARN,
                f"{shown(name)}: " + ("its download has not ended" if beside else "half a file"),
                "let the download end, or start it again",
            )
        )


def _check_safetensors(contents: Contents, model: Model, config: dict[str, Any]) -> None:
    wanted, promised = _wanted(contents, model.findings)
    if wanted is None:
        names = contents.safetensors
        _say_missing(*contents.missing_parts(NAMED), "file", model.findings)
    else:
        names = sorted(set(wanted.values()))
    headers = _headers(contents.folder, names, model.findings)
    model.files = len(headers)
    model.bytes = sum(header.data_bytes for header in headers.values())
    where: dict[str, str] = {}
    for name, header in headers.items():
        for tensor in header.tensors:
            if tensor in where:
                model.findings.append(
                    Finding(
                        "weights-twice",
                        FAIL if wanted is not None else WARN,
                        f"tensor {shown(tensor)} is in {shown(where[tensor])} and in {shown(name)}",
                        "keep one copy of the model in this folder",
                    )
                )
                break
            where[tensor] = name
    model.tensors = len(where)
    if wanted is not None:
        absent = [
            tensor
            for tensor, name in wanted.items()
            if name in headers and where.get(tensor) != name
        ]
        _say_missing(absent[:NAMED], len(absent), "tensor", model.findings)
        if model.complete and promised not in (None, model.bytes):
            model.findings.append(
                Finding(
                    "weights-config",
                    INFO,
                    f"{contents.index} says {promised:,} bytes, the tensors have {model.bytes:,}: it "
                    "may be of another revision",
                )
            )
    model.findings.extend(needs.unmet(config, headers.values()))


def _wanted(
    contents: Contents, findings: list[Finding]
) -> tuple[dict[str, str] | None, int | None]:
    """Tensor -> file, as the index has it (None without one that can be used), and its total_size."""
    document = None if contents.index is None else _json(contents, contents.index, findings)
    if document is None:
        return None, None
    weight_map = document.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        findings.append(
            Finding("weights-corrupt", FAIL, f"{contents.index} has no weight_map", AGAIN)
        )
        return None, None
    for name in set(map(str, weight_map.values())):
        if "/" in name or name in ("", ".", "..") or "\0" in name:
            findings.append(
                Finding(
                    "weights-corrupt",
                    FAIL,
                    f"{contents.index} names {shown(name)}, which is outside of its folder",
                    AGAIN,
                )
            )
            return None, None
    promised = whole(mapping(document.get("metadata")).get("total_size"))
    return {tensor: str(name) for tensor, name in weight_map.items()}, promised


def _headers(folder: Path, names: Iterable[str], findings: list[Finding]) -> dict[str, Header]:
    def read(name: str) -> Header | Finding:
        try:
            return safetensors.read(folder / name)
        except Damaged as error:
            return Finding("weights-corrupt", FAIL, f"{shown(str(folder / name))}: {error}", AGAIN)
        except OSError as error:
            return access.refusal(folder / name, error)

    from concurrent.futures import ThreadPoolExecutor  # it takes logging along: 10 ms of a probe

    found: dict[str, Header] = {}
    with ThreadPoolExecutor(READERS) as readers:
        for name, header in zip(names, readers.map(read, names)):
            if isinstance(header, Finding):
                findings.append(header)
            else:
                found[name] = header
    return found


def _say_missing(names: list[str], count: int, kind: str, findings: list[Finding]) -> None:
    if names:
        first = ", ".join(shown(name) for name in names)
        more = f" and {count - len(names)} more" if count > len(names) else ""
        said = f"{kind} {first} is missing" if count == 1 else f"{kind}s missing: {first}{more}"
        findings.append(Finding("weights-missing", FAIL, said, "download the model again"))


def _check_tokenizer(contents: Contents, findings: list[Finding]) -> None:
    if not any(name in contents.names for name in TOKENIZERS):
        findings.append(
            Finding(
                "tokenizer-missing",
                FAIL,
                f"no tokenizer is in {shown(str(contents.folder))} (tokenizer.json or the like)",
                "download its files, or name another folder: flags: {tokenizer-path: FOLDER}",
            )
        )
    _json(contents, "tokenizer.json", findings)
    settings = _json(contents, "tokenizer_config.json", findings) or {}
    if "chat_template" not in settings and not any(name in contents.names for name in TEMPLATES):
        findings.append(
            Finding("chat-template", INFO, "the model has no chat template: /v1/completions only")
        )
