"""Releases of an engine on this host: staged folders, and the links that say which one is live.

Nothing that runs is ever edited: a release is written beside the others, checked, renamed into
place, and only `sglangctl switch` makes it live.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import os
import pwd
import shutil
import stat
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from sglangctl.masking.masker import secrets_of
from sglangctl.proc import command
from sglangctl.state import ownership
from sglangctl.state.files import sync_folder, write_atomic
from sglangctl.state.paths import NAME, Paths, linked
from sglangctl.systemd import systemctl, unit_keys
from sglangctl.systemd.unit_names import engine_unit
from sglangctl.util import lazy_re, os_errors, plain_files
from sglangctl.util.errors import Failed
from sglangctl.util.values import json_object, printable, text

DIGEST = lazy_re.compile(r"[0-9a-f]{12,64}")
FILES = {
    "manifest.json": 0o644,
    "sglang.service": 0o644,
    "nccl.env": 0o644,
    "engine.env": 0o640,
    "engine.yaml": 0o640,
}
"""What a release is made of, and who may read it: the last two may hold secrets (root and the
service group)."""
SHIPPED = lazy_re.compile(r"flag-[a-z0-9-]{1,80}(?:\.[A-Za-z0-9]{1,16})?")
"""Files of the controller that an engine's flags name, in the same folder; as protected."""
FOLDER_MODE = 0o755
LINKS = ("current", "previous", "known-good")
LISTS = {"foreign": dict, "stopped": str, "disable": str, "containers": dict}
"""The lists of state.json, and what they hold."""
FOREIGN, CONTAINER = ("unit",), ("id", "name", "command")
"""What an entry of `foreign` and of `containers` has in any case, as text."""
KINDS = {"str": str, "bool": bool, "int": int, "dict": dict, "tuple": tuple, "None": type(None)}
"""By the annotations of State."""


@dataclass(frozen=True)
class State:
    """state.json: what the switch did last.

    `phase` is switching (the side that counts is the one before it), live (the new one), back (the
    switch ended with the one before), failed (it ended with none) or stopped.
    """

    phase: str
    to: str | None = None
    came_from: str | None = None
    policy: str = "declared"
    time: str | None = None
    reason: str | None = None
    foreign: tuple[dict[str, Any], ...] = ()
    """Units of others that this engine replaced: switch/recorded_unit.py."""
    config: str | None = None
    """While switching: the text of engines/NAME.json that goes live with `to`."""
    config_before: str | None = None
    """The text that it takes the place of."""
    was_running: bool = False
    """Whether `came_from` ran when the switch began."""
    stopped: tuple[str, ...] = ()
    """Units of `foreign` that ran when the switch began; the others are from switches before it."""
    disable: tuple[str, ...] = ()
    """Units that the switch stops and that stay enabled until it commits."""
    containers: tuple[dict[str, Any], ...] = ()
    """Containers that the switch stopped: id, name, command."""
    step: str | None = None
    """While switching: what it was about to do."""
    gate: dict[str, Any] | None = None
    """While switching beside what serves: {unit, before, port} (switch/gate.py)."""
    ended: str | None = None
    """Of phase back and failed: why, and what serves now."""
    fallback: dict[str, str] | None = None
    """Where `to` is a fallback of the wanted release: its `name`, the digest `instead_of` which it
    serves, and the `cause` for which that one did not."""
    owes: str | None = None
    """Why the engine has to be started again, by a deploy that may not have come to that."""
    v: int = 1

    @property
    def wanted(self) -> str | None:
        """The release that the switch was asked for."""
        return (self.fallback or {}).get("instead_of", self.to)


def link_target(name: str, link: str, paths: Paths) -> str | None:
    """The digest that `current`, `previous` or `known-good` names; None when it does not exist."""
    return linked(name, link, paths)


def staged(name: str, paths: Paths) -> list[str]:
    """The digests of all complete releases; one that lacks a file can be staged again."""
    folder = paths.releases(name)
    try:
        entries = sorted(os.listdir(folder))
    except OSError:
        return []
    return [
        entry
        for entry in entries
        if DIGEST.fullmatch(entry) and all((folder / entry / file).is_file() for file in FILES)
    ]


def mode_of(file: str) -> int:
    """Who may read a file of a release."""
    return FILES.get(file, 0o640)


def sound(name: str, paths: Paths) -> list[str]:
    """The staged releases that their engine's user can read: not so what an earlier version made
    under a umask of 027. The others can be staged again."""
    return [digest for digest in staged(name, paths) if _modes(paths.releases(name) / digest)]


def _modes(folder: Path) -> bool:
    """Whether a release's folder and files have their modes."""
    wanted = {folder: FOLDER_MODE, **{folder / file: mode for file, mode in FILES.items()}}
    try:
        return all(stat.S_IMODE(path.lstat().st_mode) == mode for path, mode in wanted.items())
    except OSError:
        return False


def read_state(name: str, paths: Paths) -> State | None:
    """state.json; None when there is none. Failed when it cannot be understood."""
    path = paths.state_json(name)
    try:
        document = json.loads(plain_files.read_bytes(path).decode("utf-8"))
        for key, kind in LISTS.items():
            entries = document.get(key, [])
            if not isinstance(entries, list) or not all(isinstance(one, kind) for one in entries):
                raise ValueError(f"{key} is of another kind, or an entry of it is")
            document[key] = tuple(entries)
        return _of_its_kinds(State(**document))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise Failed(
            f"{path} cannot be read ({os_errors.describe(error)}): move it away and deploy again"
        ) from None


def _of_its_kinds(state: State) -> State:
    """The same; ValueError for a field of another kind, and for an entry that nothing can be made of."""
    for field in fields(State):
        kinds = tuple(KINDS[part.partition("[")[0]] for part in str(field.type).split(" | "))
        if not isinstance(getattr(state, field.name), kinds):
            raise ValueError(f"{field.name} is of another kind")
    if not all(isinstance(one, str) for one in (state.fallback or {}).values()):
        raise ValueError("fallback has an entry of another kind")
    for digest in (state.to, state.came_from, state.wanted):
        if digest is not None and not DIGEST.fullmatch(str(digest)):
            raise ValueError(f"{printable(str(digest), 80)} is no release")
    for entries, keys in ((state.foreign, FOREIGN), (state.containers, CONTAINER)):
        if any(not isinstance(one.get(key), str) for one in entries for key in keys):
            raise ValueError("what ran before is not whole")
    return state


def write_state(name: str, state: State, paths: Paths) -> None:
    """Write state.json (0600: the text of a unit of others may hold secrets)."""
    document = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in state.__dict__.items()
        if value is not None
        or key not in ("config", "config_before", "step", "gate", "ended", "fallback", "owes")
    }
    write_atomic(paths.state_json(name), json.dumps(document, indent=1).encode() + b"\n", 0o600)


def stage(name: str, document: Any, paths: Paths) -> str:
    """Write a release from {digest, user, files: {name: base64}}; returns its digest.

    The unit is checked with systemd-analyze before the folder gets its name. Failed for a
    document that is not whole, and for a unit that systemd would not take as it is meant.
    """
    digest, files, user = _checked(document)
    folder = paths.releases(name) / digest
    try:
        gid = pwd.getpwnam(user).pw_gid
    except KeyError:
        raise Failed(f"the user {user!r} is missing: deploy again") from None
    if folder.is_dir() and (_same(folder, files, gid) or _rights_put_back(folder, files, gid)):
        return digest
    folder.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    partial = folder.with_name(f".{digest}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    partial.chmod(FOLDER_MODE)
    for file, data in files.items():
        write_atomic(partial / file, data, mode_of(file), 0, gid if mode_of(file) == 0o640 else 0)
    complaints = verify_unit(partial / "sglang.service", engine_unit(name))
    if complaints:
        shutil.rmtree(partial)
        raise Failed(
            "systemd-analyze does not accept the unit, nothing was changed: "
            + "; ".join(complaints)
        )
    if folder.is_dir():
        # Damaged or edited: a release is what its digest says, also the live one.
        _owe_a_start(name, digest, paths)
        damaged = folder.with_name(f".{digest}.damaged")
        shutil.rmtree(damaged, ignore_errors=True)
        os.rename(folder, damaged)
        os.rename(partial, folder)
        shutil.rmtree(damaged)
    else:
        os.rename(partial, folder)
    sync_folder(folder.parent)
    return digest


def _owe_a_start(name: str, digest: str, paths: Paths) -> None:
    """Once a live release is whole again, nobody else sees that the engine may have read it before."""
    state = read_state(name, paths)
    if state is not None and link_target(name, "current", paths) == digest:
        write_state(name, replace(state, owes="its live release was written again"), paths)


def _same(folder: Path, files: dict[str, bytes], gid: int) -> bool:
    """Whether a staged folder holds exactly these files, with their rights."""
    try:
        if not _modes(folder):
            return False
        for file, data in files.items():
            found = (folder / file).lstat()
            rights = (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid)
            wanted = (mode_of(file), 0, gid if mode_of(file) == 0o640 else 0)
            if rights != wanted or (folder / file).read_bytes() != data:
                return False
    except OSError:
        return False
    return True


def _rights_put_back(folder: Path, files: dict[str, bytes], gid: int) -> bool:
    """Give a staged folder and its files their rights; whether it holds exactly these files then.

    Where only rights were wrong nothing is written again: new files would be newer than the engine
    that has read them, and it would be restarted for nothing.
    """
    try:
        os.chown(folder, 0, 0)
        folder.chmod(FOLDER_MODE)
        for file in files:
            path = folder / file
            if not stat.S_ISREG(path.lstat().st_mode):
                return False
            os.chown(path, 0, gid if mode_of(file) == 0o640 else 0)
            path.chmod(mode_of(file))
    except OSError:
        return False
    return _same(folder, files, gid)


def verify_unit(unit_file: Path, unit: str) -> list[str]:
    """What systemd-analyze says about one of our unit files; empty is good.

    Every line counts, whatever the exit status: on systemd 252 a misspelt key is only a warning. Not
    counted is a key that came after this systemd: it goes without it.
    The unit is looked at under its own name, so that its relations to other units are right.
    """
    folder = unit_file.parent / ".verify"
    folder.mkdir()
    try:
        shutil.copyfile(unit_file, folder / unit)
        result = command.run(["systemd-analyze", "verify", "--man=no", str(folder / unit)], 60)
        if result.status is None:
            raise Failed(
                f"systemd-analyze could not be run ({result.stderr}): is systemd installed?"
            )
        lines = result.stderr.splitlines()
        # Of our units, the watch that this one wants among them; systemd also complains of others'.
        ours = [line.strip() for line in lines if "sglang" in line or str(folder) in line]
        version = systemctl.version() if ours else None
        return [line for line in ours if not unit_keys.is_expected(line, version)]
    finally:
        shutil.rmtree(folder)


def staged_at(name: str, digest: str, paths: Paths) -> float:
    """When a release was staged, in Unix seconds."""
    return (paths.releases(name) / digest).stat().st_mtime


def prune(name: str, paths: Paths, before: float = math.inf) -> list[str]:
    """Delete the releases that were staged before that time and that no link names; returns the
    digests that went. (A later one is another deploy's, on its way to its switch.)"""
    keep = {link_target(name, link, paths) for link in LINKS}
    state = read_state(name, paths)
    if state is not None:
        keep |= {state.to, state.came_from}
    gone = [
        digest
        for digest in staged(name, paths)
        if digest not in keep and staged_at(name, digest, paths) < before
    ]
    for digest in gone:
        shutil.rmtree(paths.releases(name) / digest)
    return gone


def unused_venvs(paths: Paths, without: str | None = None, before: float = math.inf) -> list[Path]:
    """Our venvs, finished before that time, that no release of any engine names (but those of the
    engine `without`)."""
    used = set()
    for folder in paths.state.iterdir() if paths.state.is_dir() else ():
        if folder.name == without or not NAME.fullmatch(folder.name):
            continue
        for digest in staged(folder.name, paths):
            used.add(venv(folder.name, digest, paths))
    return [
        one
        for one in ownership.venvs(paths)
        if str(one) not in used and (one / ownership.MARKER).stat().st_mtime < before
    ]


def manifest(name: str, digest: str, paths: Paths) -> dict[str, Any]:
    """manifest.json of a release; Failed when the release is not whole."""
    folder = paths.releases(name) / digest
    missing = [file for file in FILES if not (folder / file).is_file()]
    if missing:
        raise Failed(f"the release {digest} lacks {', '.join(missing)}: deploy again")
    try:
        document = json.loads(plain_files.read_bytes(folder / "manifest.json"))
    except (OSError, ValueError, RecursionError) as error:
        why = os_errors.describe(error)
        raise Failed(f"the manifest of {digest} cannot be read ({why}): deploy again") from None
    if not isinstance(document, dict):
        raise Failed(f"the manifest of {digest} is not a mapping: deploy again")
    return document


def venv(name: str, digest: str, paths: Paths) -> str | None:
    """The environment from which a release starts; None where its manifest names none. Failed as
    `manifest`."""
    return text(manifest(name, digest, paths).get("venv"))


def shipped(name: str, digest: str, paths: Paths) -> list[str]:
    """The files of a release that the engine's flags name."""
    found = (paths.releases(name) / digest).glob("flag-*")
    return sorted(path.name for path in found if SHIPPED.fullmatch(path.name))


def venv_of(manifest: Path) -> Path | None:
    """The venv that a manifest.json names; None without one."""
    try:
        named = text(json_object(plain_files.read_bytes(manifest)).get("venv"))
    except OSError:
        return None
    return Path(named) if named else None


def all_secrets(name: str, paths: Paths) -> list[str]:
    """Of every release that is kept: the log reaches back before the last switch."""
    folders = [paths.current(name)]
    if paths.releases(name).exists():
        folders += sorted(path for path in paths.releases(name).iterdir() if path.is_dir())
    return [secret for folder in folders for secret in secrets_of(folder)]


def check_whole(name: str, digest: str, paths: Paths) -> None:
    """Failed where a release or the environment that it starts from does not exist."""
    wanted = venv(name, digest, paths)
    if wanted is not None and not (paths.root / wanted.lstrip("/")).is_dir():
        raise Failed(
            f"nothing was changed. {wanted}, from which release {digest[:12]} starts, is gone: "
            "deploy again"
        )


def check_unchanged(name: str, seen: str, paths: Paths) -> None:
    """Failed where something was switched or stopped since the caller looked; `seen` is the
    `time` in state.json as it was then, `-` for none."""
    state = read_state(name, paths)
    if ((state.time if state else None) or "-") == seen:
        return
    what = "its state was removed"
    if state is not None:
        what = "it was stopped" if state.phase == "stopped" else f"a switch to {str(state.to)[:12]}"
        what += f" ({state.time})"
    raise Failed(
        f"nothing was changed. {name} is not as it was when this deploy looked at the host "
        f"({what} came between): deploy again"
    )


def _checked(document: Any) -> tuple[str, dict[str, bytes], str]:
    try:
        digest, user = document["digest"], document["user"]
        files = {
            file: base64.b64decode(text, validate=True) for file, text in document["files"].items()
        }
    except (KeyError, TypeError, AttributeError, binascii.Error) as error:
        raise Failed(f"what was sent is not a release ({error!r}): deploy again") from None
    if not isinstance(digest, str) or not DIGEST.fullmatch(digest):
        raise Failed(f"{digest!r} is not a release's digest")
    if set(files) - {file for file in files if SHIPPED.fullmatch(file)} != set(FILES):
        raise Failed(f"a release has {', '.join(FILES)}, not {', '.join(sorted(files))}")
    return digest, files, str(user)
