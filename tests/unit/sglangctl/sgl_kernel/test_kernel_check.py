"""What a kernel's failure is called: real error lines, and a real Python that runs the program."""

from __future__ import annotations

import json
import os
import pwd
import sys
import tempfile
from pathlib import Path

import pytest

from sglangctl.cli import main
from sglangctl.sgl_kernel.library import stamp
from sglangctl.sgl_kernel.library.check import check, judge
from sglangctl.sgl_kernel.library.judging import Inspection
from sglangctl.sgl_kernel.venv import Torch, load
from tests.kernel import sites

TORCH = Torch("2.13.0+cu130", "13.0", Path("/none"))
SEEN = Inspection("x", "unknown", "", version="0.4.10", built_for="2.14.1")
IMPORT = '{"stage": "torch"}\n{"stage": "sgl_kernel", "torch": "2.13.0+cu130", "cuda": "13.0"}\n'
OP = IMPORT + '{"stage": "op", "gpu": "NVIDIA RTX PRO 6000", "sm": "120"}\n'


@pytest.mark.parametrize(
    ("line", "answers", "cause", "words"),
    [
        (
            "ImportError: /v/sm100/common_ops.abi3.so: undefined symbol: _ZN3c104cuda9SetDeviceEab",
            IMPORT,
            "kernel-broken",
            ["torch 2.14.1", "torch 2.13.0+cu130", "_ZN3c104cuda9SetDeviceEab"],
        ),
        (
            "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory",
            IMPORT,
            "driver-mismatch",
            ["no NVIDIA driver"],
        ),
        (
            "- ImportError: libnvrtc.so.12: cannot open shared object file: No such file",
            IMPORT,
            "kernel-broken",
            ["CUDA 12", "libnvrtc.so.12", "brings CUDA 13.0"],
        ),
        (
            "ImportError: /v/sgl_kernel/sm100/common_ops.abi3.so: file too short",
            IMPORT,
            "kernel-broken",
            ["truncated", "common_ops.abi3.so"],
        ),
        (
            "ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found "
            "(required by /v/common_ops.abi3.so)",
            IMPORT,
            "kernel-broken",
            ["GLIBC_2.38"],
        ),
        (
            "ImportError: libnuma.so.1: cannot open shared object file: No such file or directory",
            IMPORT,
            "kernel-broken",
            ["libnuma.so.1"],
        ),
        ("ModuleNotFoundError: No module named 'sgl_kernel'", IMPORT, "kernel-broken", ["no kern"]),
        ("[sgl_kernel] CRITICAL: Could not load any common_ops library!", IMPORT, "kernel-broken",
         ["loader finds no library"]),
        (
            "RuntimeError: CUDA error: no kernel image is available for execution on the device",
            OP,
            "no-kernel-image",
            ["RTX PRO 6000", "sm_120"],
        ),
        (
            "RuntimeError: The NVIDIA driver on your system is too old (found version 12040).",
            OP,
            "driver-mismatch",
            ["too old for CUDA 13.0"],
        ),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", OP, "gpu-fault",
         ["RTX PRO 6000"]),
    ],
)  # fmt: skip
def test_error_lines_are_translated(line: str, answers: str, cause: str, words: list[str]) -> None:
    text = f"Traceback (most recent call last):\n  File x\n{line}\n"
    result = judge(1, answers, text, TORCH, SEEN)
    assert (result.outcome, result.cause, result.exit_status) == ("failed", cause, 1)
    assert result.next_step
    for word in words:
        assert word in result.reason
    assert line[:400] in result.evidence


def test_what_python_says_of_a_pth_file_is_no_evidence() -> None:
    """As it stood below an operation whose numbers were right, on an H200."""
    noise = "Error processing line 1 of /v/site-packages/x.pth:\n\n  ImportError: No module\n\n"
    result = judge(0, OP + '{"stage": "done", "error": 0.004}\n', noise, TORCH, SEEN)
    assert result.outcome == "ok" and result.evidence == ()


def test_the_telling_line_need_not_be_the_last() -> None:
    """As sglang-kernel 0.4.10 said it on an H200 with torch 2.11 (docs/evidence)."""
    text = (
        "    raise ImportError(error_msg)\nImportError: \n"
        "[sgl_kernel] CRITICAL: Could not load any common_ops library!\n"
        "Error details from previous import attempts:\n"
        "- ImportError: /v/sm90/common_ops.abi3.so: undefined symbol: _ZN3c104cuda19CUDAErrorLogC\n"
        "- ModuleNotFoundError: No module named 'common_ops'\n"
    )
    result = judge(1, IMPORT, text, TORCH, SEEN)
    assert "_ZN3c104cuda19CUDAErrorLogC" in result.reason
    assert "torch 2.14.1" in result.reason


@pytest.mark.parametrize(
    ("returncode", "cause", "word"),
    [
        (-7, "kernel-broken", "truncated"),
        (-9, "host-out-of-memory", "killed"),
        (-11, "kernel-broken", "crashed"),
        (-6, "kernel-broken", "SIGABRT"),
    ],
)
def test_deaths_are_translated(returncode: int, cause: str, word: str) -> None:
    result = judge(returncode, IMPORT, "Fatal Python error: Bus error\n", TORCH, SEEN)
    assert (result.outcome, result.cause) == ("failed", cause)
    assert word in result.reason


def test_a_full_gpu_is_not_a_broken_kernel() -> None:
    result = judge(1, OP, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate", TORCH)
    assert (result.outcome, result.exit_status) == ("unknown", 2)


def test_wrong_numbers_fail_and_right_ones_do_not() -> None:
    assert judge(0, OP + '{"stage": "done", "error": 0.004}\n', "").exit_status == 0
    assert judge(0, OP + '{"stage": "done", "error": 3.5}\n', "").outcome == "failed"
    assert judge(0, OP + '{"stage": "done", "error": NaN}\n', "").outcome == "failed"


def test_an_unknown_failure_shows_its_last_line() -> None:
    result = judge(1, IMPORT, "Traceback:\nValueError: something new\n", TORCH)
    assert result.cause == "unknown"
    assert "ValueError: something new" in result.reason


def test_no_gpu_is_not_ok() -> None:
    result = judge(0, IMPORT + '{"stage": "no-gpu"}\n', "")
    assert (result.outcome, result.exit_status) == ("unknown", 2)
    assert "no GPU" in result.reason


def environment(tmp_path: Path, kernel: str, torch: str = "") -> Path:
    site = sites.venv(tmp_path / "venv")
    source = "from types import SimpleNamespace as N\n__version__ = '2.14.1'\n"
    source += "version = N(cuda='13.0')\ncuda = N(is_available=lambda: False)\n"
    (site / "torch/__init__.py").write_text(source + torch)
    sites.install(site, sites.files(**{"sgl_kernel/__init__.py": kernel}))
    return tmp_path / "venv"


def test_the_program_runs_in_the_environment(tmp_path: Path) -> None:
    noise = "import os; os.write(1, b'hello'); print('{\"stage\": \"done\"}')"
    result = check(load(environment(tmp_path, f"__version__ = '0.4.10'\n{noise}")))
    assert result.outcome == "unknown"
    assert (result.stage, result.torch, result.kernel) == ("no-gpu", "2.14.1", "0.4.10")


def test_a_bus_error_is_told(tmp_path: Path) -> None:
    result = check(load(environment(tmp_path, "import os; os.kill(os.getpid(), 7)")))
    assert (result.returncode, result.cause) == (-7, "kernel-broken")
    assert "truncated" in result.reason


def test_a_real_loader_error_is_told(tmp_path: Path) -> None:
    broken = tmp_path / "common_ops.abi3.so"
    broken.write_bytes(sites.LIBRARY.read_bytes()[:500])
    kernel = f"import ctypes; ctypes.CDLL({str(broken)!r})"
    result = check(load(environment(tmp_path, kernel)))
    assert result.cause == "kernel-broken"
    assert "truncated" in result.reason


def test_a_hang_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sglangctl.sgl_kernel.library.check.TIMEOUT_S", 0.3)
    result = check(load(environment(tmp_path, "import time; time.sleep(60)")))
    assert result.outcome == "failed"
    assert "no answer within 0.3 s" in result.reason and result.cause == "unknown"


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = environment(tmp_path, "raise ImportError('libcuda.so.1: cannot open shared object')")
    assert main(["kernel", "check", "--venv", str(root), "--user=root", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["v"], document["cause"]) == (1, "driver-mismatch")


def test_command_without_an_environment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernel", "check", "--venv", str(tmp_path / "none")]) == 2
    assert "does not run" in capsys.readouterr().err


def test_a_check_without_a_gpu_is_remembered_only_where_none_is_meant_to_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = environment(tmp_path, "__version__ = '0.4.10'")
    arguments = ["kernel", "check", "--user=root", "--venv", str(root), "--remember"]
    assert main(arguments) == 2
    assert stamp.read(load(root)) is None
    assert main([*arguments, "--accept-no-gpu"]) == 2
    assert stamp.read(load(root)) == "unknown"
    # Another kernel over it: the stamp is not of this one.
    record = next(load(root).site_packages.glob("sglang_kernel-*.dist-info")) / "RECORD"
    record.write_text(record.read_text() + "x,,\n")
    assert stamp.read(load(root)) is None
    capsys.readouterr()


SYSTEM_PYTHON = f"/usr/bin/python3.{sys.version_info[1]}"
"""One that every user may run."""


@pytest.mark.skipif(
    os.geteuid() != 0 or not os.path.exists(SYSTEM_PYTHON),
    reason="only root can give its rights up, to somebody who may run Python",
)
def test_what_is_imported_has_not_the_rights_of_root(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A kernel of somebody else's wheel writes where only root may, and prints what it was given."""
    monkeypatch.setenv("A_ROOT_SECRET", "hunter2")
    nobody = pwd.getpwnam("nobody")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        folder.chmod(0o755)
        mine = folder / "mine"
        root = environment(
            folder,
            "import os, sys\n"
            "print('Error', os.getresuid(), os.getresgid(), dict(os.environ), file=sys.stderr)\n"
            f"open({str(mine)!r}, 'w').close()\n",
        )
        python = root / "bin/python"
        python.unlink()
        python.symlink_to(SYSTEM_PYTHON)
        (root / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
        result = check(load(root), user="nobody")
        said = "\n".join(result.evidence)
        assert not mine.exists() and "Permission denied" in said
        assert f"{(nobody.pw_uid,) * 3} {(nobody.pw_gid,) * 3}" in said and "hunter2" not in said
        assert main(["kernel", "check", "--venv", str(root)]) == 1
        assert not mine.exists()
        assert main(["kernel", "check", "--venv", str(root), "--user", "no-such-user"]) == 2
        assert "no user no-such-user" in capsys.readouterr().err
        assert not mine.exists()
        main(["kernel", "check", "--venv", str(root), "--user", "root"])
        assert mine.exists()  # what the attack does to root


def test_a_check_that_we_ended_is_no_lack_of_memory() -> None:
    """Its SIGKILL was ours: what the OOM killer leaves looks the same."""
    result = judge(None, IMPORT, "", TORCH, SEEN)
    assert (result.outcome, result.cause, result.exit_status) == ("failed", "unknown", 1)
    assert "no answer within" in result.reason and "host" in str(result.next_step)


@pytest.mark.parametrize("line", ["5", "[1]", '["ab"]', "null", "[" * 100_000])
def test_an_answer_of_another_shape_is_left_out(line: str) -> None:
    """The environment's code writes it."""
    assert judge(1, f"{line}\n{IMPORT}", "Fatal Python error: Bus error\n", TORCH, SEEN).reason
