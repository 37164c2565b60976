import os
import resource
import stat
from pathlib import Path

import pytest

from sglangctl.proc import as_user
from sglangctl.state import files


def test_a_file_that_differs_comes_with_its_text_and_without_its_secrets(tmp_path: Path) -> None:
    path = tmp_path / "engine.yaml"
    path.write_text('port: 30000\napi-key: "planted"\n')
    path.chmod(0o640)
    facts = files.describe(str(path), wanted="0" * 64)
    assert facts["kind"] == "file"
    assert facts["mode"] == "0640"
    assert facts["text"] == "port: 30000\napi-key: ***\n"
    assert "text" not in files.describe(str(path), wanted=facts["sha256"])


def test_kinds(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    assert files.describe(str(tmp_path))["kind"] == "directory"
    assert files.describe(str(tmp_path / "link"))["target"] == "nowhere"
    assert files.describe(str(tmp_path / "none")) == {"kind": "absent"}
    assert files.describe(str(tmp_path / "link" / "below")) == {"kind": "absent"}
    assert files.describe("/dev/null")["kind"] == "other"


def test_binary_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"\xff\xfe\x00")
    assert files.describe(str(path), wanted="x")["text"] is None


def test_write_atomic_is_never_wider_than_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    left_over = tmp_path / ".secret.new"
    left_over.write_text("from an interrupted run")
    left_over.chmod(0o666)
    files.write_atomic(path, b"x", 0o600)
    assert path.read_bytes() == b"x"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["secret"]


def test_link_atomic_replaces_a_link(tmp_path: Path) -> None:
    link = tmp_path / "current"
    files.link_atomic(link, "releases/a")
    files.link_atomic(link, "releases/b")
    assert os.readlink(link) == "releases/b"


@pytest.mark.timeout(20)
def test_write_atomic_follows_nothing_that_others_left_in_the_folder(tmp_path: Path) -> None:
    """A package in its venv, node_exporter's user in the folder of `metrics --textfile`."""
    path, outside = tmp_path / "sglang.prom", tmp_path / "outside"
    outside.write_text("root's")
    outside.chmod(0o640)
    beside = tmp_path / ".sglang.prom.new"
    beside.symlink_to(outside)
    path.symlink_to(outside)
    files.write_atomic(path, b"x", 0o644)
    os.mkfifo(beside)
    files.write_atomic(path, b"y", 0o644)
    assert path.read_text() == "y" and not path.is_symlink()
    assert outside.read_text() == "root's" and stat.S_IMODE(outside.stat().st_mode) == 0o640


def test_what_a_person_wrote_in_by_hand_has_secrets_too() -> None:
    """The text is shown in a plan, in the report, and as a reason in the arguments of a command."""
    text = (
        "[Service]\n"
        'Environment=HF_TOKEN=planted-1 "A=planted-2 b"\n'
        "ExecStart=/v/bin/python -m sglang.launch_server --api-key planted-3 --port 1\n"
        "ExecStartPre=/bin/sh -c \"curl -H 'Authorization: Bearer planted-4' u\"\n"
        "PIP_INDEX_URL=https://me:planted-5@host/simple\n"
        "SetCredential=SECRET:\\\n planted-6\n"
        "ExecStop=/x --token \\\n planted-7\n"
        "Restart=always\n"
    )
    masked = files.masked_text(text.encode()) or ""
    assert "planted" not in masked
    assert "--port 1" in masked and "Restart=always" in masked


def test_whether_a_file_can_be_made(tmp_path: Path) -> None:
    assert files.no_room(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
    assert files.no_room(tmp_path / "missing") == "No such file or directory"
    assert files.no_room(Path("/proc")) is not None


def test_a_file_that_can_be_made_and_not_written_has_no_room(tmp_path: Path) -> None:
    def limited() -> str | None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        return files.no_room(tmp_path)

    assert as_user.within(20, limited) == "File too large"
