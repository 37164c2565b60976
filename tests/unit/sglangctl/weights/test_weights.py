"""Whole folders of weights, and every way of not being one."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks import weights
from sglangctl.cli import main
from sglangctl.proc import as_user
from sglangctl.state.paths import Paths
from sglangctl.util.errors import Unusable
from sglangctl.weights import hashes, look
from sglangctl.weights.check import Model, check
from tests.support.holding import passable
from tests.support.safetensors_files import content, shards, write

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: another user's rights")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shards(tmp_path / "model")
    return tmp_path / "model"


def said(model: Model) -> dict[str, str]:
    """Finding's id -> its sentence, of those that fail."""
    return {finding.id: finding.seen for finding in model.findings if finding.level == "fail"}


def test_a_whole_model(folder: Path) -> None:
    model = check(folder)
    assert model.findings == []
    assert (model.files, model.tensors) == (3, 7)
    assert model.bytes == 3 * 2 * 4 * 8 * 2 + 32 * 8 * 2


def test_a_missing_shard(folder: Path) -> None:
    """SGLang 0.5.16 serves without it (measured on two H200s)."""
    (folder / "model-00002-of-00003.safetensors").unlink()
    model = check(folder)
    assert "model-00002-of-00003.safetensors is missing" in said(model)["weights-missing"]
    assert model.files == 2


def test_a_missing_shard_without_an_index(folder: Path) -> None:
    (folder / "model.safetensors.index.json").unlink()
    (folder / "model-00002-of-00003.safetensors").unlink()
    assert "model-00002-of-00003.safetensors" in said(check(folder))["weights-missing"]


def test_no_shard_at_all(folder: Path) -> None:
    """A copy that shipped 0 of 48 shards and said that it was complete."""
    for shard in folder.glob("*.safetensors"):
        shard.unlink()
    model = check(folder)
    assert not model.complete
    assert len([one for one in model.findings if one.id == "weights-missing"]) == 3


def test_a_cut_shard(folder: Path) -> None:
    shard = folder / "model-00003-of-00003.safetensors"
    os.truncate(shard, shard.stat().st_size - 1)
    assert (
        "model-00003-of-00003.safetensors: it is truncated"
        in said(check(folder))["weights-corrupt"]
    )


def test_a_tensor_that_the_index_promises(folder: Path) -> None:
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    index["weight_map"]["lm_head.weight"] = "model-00003-of-00003.safetensors"
    write(folder / "model.safetensors.index.json", index)
    assert "lm_head.weight is missing" in said(check(folder))["weights-missing"]


def test_a_tensor_in_two_shards(folder: Path) -> None:
    (folder / "model-00003-of-00003.safetensors").write_bytes(
        content(
            {
                "layers.3.q": ("uint8", [1]),
                "layers.3.k": ("uint8", [1]),
                "layers.2.q": ("uint8", [1]),
            }
        )
    )
    assert "layers.2.q" in said(check(folder))["weights-twice"]


@pytest.mark.parametrize("name", ["../elsewhere.safetensors", "/etc/passwd", "", "a/b.safetensors"])
def test_an_index_that_leads_out_of_its_folder(folder: Path, name: str) -> None:
    write(folder / "model.safetensors.index.json", {"weight_map": {"a": name}})
    assert "outside of its folder" in said(check(folder))["weights-corrupt"]


@pytest.mark.parametrize(
    ("file", "text", "id_"),
    [
        ("model.safetensors.index.json", '{"weight_map": {', "weights-corrupt"),
        ("model.safetensors.index.json", '{"weight_map": {}}', "weights-corrupt"),
        ("model.safetensors.index.json", "[]", "weights-corrupt"),
        ("config.json", "", "weights-corrupt"),
        ("config.json", "{", "weights-corrupt"),
        ("tokenizer.json", '{"model"', "weights-corrupt"),
        ("tokenizer_config.json", "[" * 100000, "weights-corrupt"),
        ("config.json", None, "model-config"),
        ("tokenizer.json", None, "tokenizer-missing"),
    ],
)
def test_small_files(folder: Path, file: str, text: str | None, id_: str) -> None:
    if text is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(text)
    assert id_ in said(check(folder))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_a_small_file_that_an_editor_wrote_in_another_encoding(
    folder: Path, name: str, encoding: str
) -> None:
    """transformers reads UTF-8, and refuses the mark before it."""
    text = (folder / name).read_text()
    (folder / name).write_text(text, encoding)
    assert f"{name} is incomplete, or not JSON in UTF-8" in said(check(folder))["weights-corrupt"]


def test_what_is_there_in_the_place_of_a_file_is_named(folder: Path) -> None:
    (folder / "tokenizer.json").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\n"
    )
    assert "Git LFS pointer" in said(check(folder))["weights-corrupt"]
    shard = folder / "model-00002-of-00003.safetensors"
    shard.unlink()
    shard.mkdir()
    (found,) = [one for one in check(folder).findings if one.id == "weights-unreadable"]
    assert found.fix == "move it away, and download that file again"


def test_a_drafter_needs_no_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    assert check(folder, tokenizer=False).complete


def test_a_download_that_has_not_ended(folder: Path) -> None:
    """aria2 writes into the file itself: all sizes and headers are right."""
    (folder / "model-00001-of-00003.safetensors.aria2").write_bytes(b"x")
    assert "has not ended" in said(check(folder))["weights-unfinished"]
    (folder / "model-00001-of-00003.safetensors.aria2").unlink()
    (folder / "other.incomplete").write_bytes(b"x")
    model = check(folder)
    assert model.complete
    assert [one.id for one in model.findings] == ["weights-unfinished"]


def test_links_into_a_hub_cache(folder: Path) -> None:
    blobs = folder.parent / "blobs"
    blobs.mkdir()
    for shard in sorted(folder.glob("*.safetensors")):
        blob = blobs / hashlib.sha256(shard.read_bytes()).hexdigest()
        shard.rename(blob)
        shard.symlink_to(blob)
    assert check(folder).findings == []
    assert hashes.verify(folder, hashes.from_source(folder), {}, lambda _: None, lambda: None) == []
    blob.unlink()
    assert "is a link to" in said(check(folder))["weights-missing"]


def test_other_formats(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "bin"
    other.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(folder / name, other)
    assert "no weights are in" in said(check(other))["weights-missing"]
    (other / "pytorch_model.bin").write_bytes(b"x")
    model = check(other)
    assert model.complete
    assert [one.level for one in model.findings] == ["info"]


@pytest.mark.parametrize("path", ["moonshotai/Kimi-K2.5", "/nowhere/at/all"])
def test_no_such_folder(path: str) -> None:
    assert "weights-missing" in said(check(Path(path)))


def test_what_config_json_promises(folder: Path) -> None:
    write(
        folder / "config.json",
        {
            "architectures": ["X"],
            "vocab_size": 64,
            "quantization_config": {"quant_method": "compressed-tensors"},
        },
    )
    model = check(folder)
    assert model.complete
    assert [one.id for one in model.findings] == ["weights-config", "weights-config"]
    assert "vocab_size 64" in model.findings[0].seen


@pytest.mark.parametrize(
    ("config", "tensors", "said"),
    [
        ({"draft_vocab_size": 32000}, {}, "no tensor d2t"),
        ({"draft_vocab_size": 32000}, {"d2t": ("int64", [32000])}, ""),
        ({"draft_vocab_size": 32000}, {"model.d2t": ("int64", [100])}, "has the shape [100]"),
        ({"draft_vocab_size": 64000}, {}, ""),
        ({"draft_vocab_size": None}, {}, ""),
        ({"draft_vocab_size": "x"}, {}, ""),
    ],
)
def test_a_drafter_with_a_vocabulary_of_its_own(
    tmp_path: Path, config: dict[str, Any], tensors: dict[str, Any], said: str
) -> None:
    named = {"architectures": ["LlamaForCausalLMEagle3"], "vocab_size": 64000}
    write(tmp_path / "config.json", {**named, **config})
    data = content({"midlayer.q.weight": ("bfloat16", [4, 8]), **tensors})
    (tmp_path / "model.safetensors").write_bytes(data)
    found = check(tmp_path, tokenizer=False).findings
    assert [one.level for one in found] == (["warn"] if said else [])
    assert all(said in one.seen for one in found)


def test_an_index_of_another_revision_is_information(folder: Path) -> None:
    """Tools write wrong sums, too: nothing is refused for it."""
    index = folder / "model.safetensors.index.json"
    document = json.loads(index.read_text())
    for size, told in ((check(folder).bytes, 0), (1, 1), (None, 0), ("x", 0)):
        write(index, {**document, "metadata": {"total_size": size}})
        found = check(folder).findings
        assert [one.level for one in found] == ["info"] * told
        assert all("says 1 bytes" in one.seen for one in found)
    write(index, {**document, "metadata": 7})
    assert check(folder).findings == []


@pytest.mark.slow
def test_sixty_four_shards_are_quick(tmp_path: Path) -> None:
    """547 GB have 64 headers: 2 s is the promise from a cold NVMe, five times that a hard limit."""
    weights.make(tmp_path)
    began = time.monotonic()
    model = check(tmp_path)
    assert model.complete and model.bytes > 546e9
    assert time.monotonic() - began < 10


@ROOT
def test_weights_that_the_engines_user_cannot_read() -> None:
    """Measured: mode 0600 reads in SGLang's log as "No such file or directory"."""
    with passable() as place:
        shards(place / "a/model")
        shard = place / "a/model/model-00002-of-00003.safetensors"
        shard.chmod(0o600)
        model = look.model(place / "a/model", "nobody", paths=Paths(place))
        assert "user nobody cannot read it: mode 0600" in said(model)["weights-unreadable"]
        shard.chmod(0o644)
        (place / "a").chmod(0o700)
        model = look.model(place / "a/model", "nobody", paths=Paths(place))
        assert f"the folder {place}/a is closed" in said(model)["weights-unreadable"]
        (place / "a").chmod(0o755)
        assert look.model(place / "a/model", "nobody", paths=Paths(place)).complete


@ROOT
def test_only_what_changed_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    real = as_user.ask
    monkeypatch.setattr(as_user, "within", lambda limit_s, question: question())
    monkeypatch.setattr(as_user, "ask", lambda *words: asked.append(1) or real(*words))  # type: ignore[func-returns-value]
    with passable() as place:
        folder, paths = place / "model", Paths(place)
        shards(folder)
        first = look.model(folder, "nobody", paths=paths)
        assert look.model(folder, "nobody", paths=paths) == first
        assert len(asked) == 1
        shard = folder / "model-00001-of-00003.safetensors"
        data = shard.read_bytes()
        shard.unlink()
        assert not look.model(folder, "nobody", paths=paths).complete
        shard.write_bytes(data)
        shard.chmod(0o600)
        assert not look.model(folder, "nobody", paths=paths).complete
        shard.chmod(0o644)
        assert look.model(folder, "nobody", paths=paths) == first
        place.chmod(0o700)
        assert not look.model(folder, "nobody", paths=paths).complete
        place.chmod(0o755)
        assert len(asked) == 5


def test_a_look_that_hangs_is_ended() -> None:
    began = time.monotonic()
    with pytest.raises(as_user.NoAnswer, match="may hang"):
        as_user.ask(as_user_name(), lambda: time.sleep(60), 0.2)
    assert time.monotonic() - began < 10


def as_user_name() -> str:
    import pwd

    return pwd.getpwuid(os.geteuid()).pw_name


def test_sha256(folder: Path) -> None:
    names = sorted(path.name for path in folder.glob("*.safetensors"))
    listed = "".join(
        f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  ./{name}\n" for name in names
    )
    wanted = hashes.from_list(listed)
    known: dict[str, object] = {}
    kept: list[int] = []
    told: list[hashes.Progress] = []

    def verify() -> list[str]:
        found = hashes.verify(folder, wanted, known, told.append, lambda: kept.append(len(known)))
        return [one.seen for one in found]

    assert verify() == []
    assert kept == [1, 2, 3]
    assert told[-1].done == told[-1].total == sum((folder / n).stat().st_size for n in names)
    assert verify() == [] and kept == [1, 2, 3]  # nothing was read again
    data = bytearray((folder / names[1]).read_bytes())
    data[-1] ^= 1  # one bit of one tensor: all sizes and headers are right
    (folder / names[1]).write_bytes(bytes(data))
    assert check(folder).complete
    (wrong,) = verify()
    assert names[1] in wrong
    (folder / names[2]).unlink()
    assert any("missing" in one for one in verify())


def test_sha256_tells_of_a_file_that_takes_long_and_ends_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single file may have 100 GB; Ctrl-C keeps what was read, and reads no more."""
    names = sorted(path.name for path in folder.glob("*.safetensors"))
    with open(folder / names[1], "ab") as file:
        file.truncate(1 << 40)
    wanted = dict.fromkeys(names, "0" * 64)
    monkeypatch.setattr(hashes, "TELL_S", 0.05)
    known: dict[str, object] = {}
    told: list[hashes.Progress] = []

    def tell(progress: hashes.Progress) -> None:
        told.append(progress)
        if len(told) > 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hashes.verify(folder, wanted, known, tell, lambda: None, workers=1)
    assert set(known) == {names[0]}, "the third one waited for the second"
    assert told[2].done < told[-1].done < told[-1].total


@pytest.mark.parametrize("line", ["xyz  a", f"{'0' * 64}  ../a", f"{'0' * 64}  /etc/passwd"])
def test_a_list_that_is_none(line: str) -> None:
    with pytest.raises(Unusable, match="line 1"):
        hashes.from_list(line)


def test_what_the_hub_s_client_wrote_down(folder: Path) -> None:
    kept = folder / hashes.HUB
    kept.mkdir(parents=True)
    digest = "ab" * 32
    (kept / "a.safetensors.metadata").write_text(f"{'0' * 40}\n{digest}\n1764400000.1\n")
    (kept / "config.json.metadata").write_text(f"{'0' * 40}\n{'1' * 40}\n1764400000.1\n")
    assert hashes.from_source(folder) == {"a.safetensors": digest}


def test_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["weights", str(folder), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["weights"][0]["complete"] is True and document["findings"] == []
    (folder / "model-00002-of-00003.safetensors").unlink()
    assert main(["weights", str(folder)]) == 1
    out = capsys.readouterr().out
    assert out.splitlines()[0].startswith(f"{folder}: not complete (2 files")
    assert "model-00002-of-00003.safetensors is missing" in out
    assert main(["weights", str(folder), "--user", "no-such-user"]) == 2
    assert "no-such-user" in capsys.readouterr().err
    assert main(["weights", "--engine", "nope"]) == 2


def test_the_command_without_anything_to_compare_with(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["weights", str(folder), "--sha256"]) == 2
    assert "--sha256" in capsys.readouterr().err
