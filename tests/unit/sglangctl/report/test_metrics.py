"""`sglangctl metrics`: valid text, nothing invented."""

from __future__ import annotations

import errno
import re
import threading
from pathlib import Path

import pytest

from sglangctl import cli
from sglangctl.engine import accepted
from sglangctl.engine.load import Load, Speed
from sglangctl.report import metrics, textfile
from sglangctl.report.textfile import Writer
from sglangctl.state.config import load_engine
from sglangctl.state.paths import Paths
from tests.support.engine_host import write_config
from tests.support.startup_events import UVICORN
from tests.support.watched import Watched

LINE = re.compile(r'([a-z_]+)(?:\{([a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)+\}) (-?[0-9.e+-]+)')
START = "20261130T070000Z-0123"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SGLANGCTL_ROOT", str(tmp_path))
    write_config(tmp_path, 30000)
    return tmp_path


def started(root: Path) -> None:
    folder = Paths(root).starts("tiny") / START
    folder.mkdir(parents=True)
    watch = Watched(folder / "journal.jsonl")
    watch.write(0, "launch", v=1, engine="sglang", port=30000)
    watch.write(9, "log", data=UVICORN + "\n")
    watch.write(10, "http", path="/health", status=200, error=None, seconds=0.1)
    watch.write(
        12, "generate", status=200, seconds=0.9, text_ok=True, tokens_per_s=41.5, ttft_s=0.2,
        warm={"seconds": 6.1, "paths": []},
    )  # fmt: skip
    gpu = {"index": 3, "memory_used_mib": 512, "memory_total_mib": 1024, "utilization_pct": 37}
    watch.write(50, "gpu", gpus=[{**gpu, "power_w": None}])
    for t in (60, 80, 100):
        watch.write(t, "http", path="/health", status=None, error="TimeoutError", seconds=15.0)


def samples(text: str) -> dict[str, float]:
    """Every line is one of the format; label sets sorted as written."""
    found = {}
    for line in text.splitlines():
        if line.startswith("# "):
            continue
        match = LINE.fullmatch(line)
        assert match, line
        found[line.rpartition(" ")[0]] = float(match[3])
    return found


def test_what_is_known_is_a_sample(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    started(root)
    speed = Speed(1, 9, 63.6, 0.1, 0.1, 0.1, 0.01, 0.01, 0.01, 0.01, 0.01, None, None)
    accepted.store(load_engine("tiny", Paths()), Load(9.0, (speed,)), Paths())
    assert cli.main(["metrics"]) == 0
    text = capsys.readouterr().out
    assert text.endswith("# EOF\n") and text.count("# TYPE sglang_engine_outcome gauge\n") == 1
    found = samples(text)
    assert found['sglang_engine_outcome{engine="tiny",outcome="unresponsive"}'] == 1
    assert found['sglang_engine_outcome{engine="tiny",outcome="ready"}'] == 0
    assert found['sglang_engine_proof_tokens_per_second{engine="tiny"}'] == 41.5
    assert found['sglang_engine_proof_warm_seconds{engine="tiny"}'] == 6.1
    assert found['sglang_engine_alarms{engine="tiny"}'] == 1
    key = 'sglang_engine_accepted_tokens_per_second{engine="tiny",concurrency="1"}'
    assert found[key] == 63.6
    gpus = {line: value for line, value in found.items() if line.startswith("sglang_gpu_")}
    labels = '{engine="tiny",gpu="3"}'
    assert gpus == {
        f"sglang_gpu_memory_used_bytes{labels}": 512 << 20,
        f"sglang_gpu_memory_total_bytes{labels}": 1024 << 20,
        f"sglang_gpu_utilization_ratio{labels}": 0.37,
    }


def test_what_is_old_of_the_gpus_is_not_told(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started(root)
    monkeypatch.setattr(metrics, "GPUS_AGE_S", 10.0)  # the journal's last event is 50 s younger
    assert cli.main(["metrics"]) == 0
    assert "sglang_gpu_" not in capsys.readouterr().out


def test_what_is_not_known_is_none(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["metrics"]) == 0
    found = samples(capsys.readouterr().out)
    assert [name for name in found if "info" not in name and "gpu" not in name] == []


def test_a_textfile_is_written_whole(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "sglang.prom"
    assert cli.main(["metrics", "--textfile", str(file)]) == 0
    assert file.read_text().endswith("# EOF\n")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_label_cannot_end_early() -> None:
    text = metrics.text([("sglang_engine_info", {"unit": 'a"} 1\n\\'}, 1.0)])
    assert samples(text) and text.count("\n") == 4


def test_a_watch_writes_a_file_of_its_own_where_node_exporter_has_a_folder(root: Path) -> None:
    started(root)
    file = Paths().textfile("tiny")
    Writer("tiny", Paths()).write()
    assert not file.parent.exists(), "a host without node_exporter stays as it is"
    file.parent.mkdir(parents=True)
    Writer("tiny", Paths()).write()
    found = samples(file.read_text())
    assert found['sglang_engine_outcome{engine="tiny",outcome="unresponsive"}'] == 1
    assert all('engine="tiny"' in name for name in found), "two files must not have one series"
    assert file.stat().st_mode & 0o777 == 0o644
    assert [one.name for one in file.parent.iterdir()] == [file.name]


def test_what_cannot_be_written_is_said_once(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "sglang-tiny.prom")

    Paths().textfile("tiny").parent.mkdir(parents=True)
    writer = Writer("tiny", Paths())
    with monkeypatch.context() as broken:
        broken.setattr(textfile, "write_atomic", full)
        writer.write()
        writer.write()
    assert capsys.readouterr().err.count("full") == 1
    writer.write()
    assert Paths().textfile("tiny").exists()
    Paths().engine_json("tiny").unlink()
    writer.write()
    assert "no engine" in capsys.readouterr().err


def test_it_is_written_again_and_again_until_the_watch_ends(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(textfile, "EVERY_S", 0.01)
    written = threading.Semaphore(0)
    writer = Writer("tiny", Paths())
    monkeypatch.setattr(writer, "write", written.release)
    writer.start()
    assert all(written.acquire(timeout=10) for _ in range(3))
    writer.stop()
