from __future__ import annotations

from pathlib import Path

from sglangctl.watch.jit_caches import JitCaches, places


def test_a_cache_that_gets_a_file_or_a_longer_one_has_grown(tmp_path: Path) -> None:
    env = {"TRITON_CACHE_DIR": str(tmp_path / "triton"), "XDG_CACHE_HOME": str(tmp_path / ".cache")}
    caches = JitCaches(env)
    assert caches.grown() == ()
    (tmp_path / "triton" / "key").mkdir(parents=True)
    assert caches.grown() == ()
    kernel = tmp_path / "triton" / "key" / "kernel.cubin"
    kernel.write_bytes(b"x")
    assert caches.grown() == ("Triton's cache",)
    assert caches.grown() == ()
    kernel.write_bytes(b"xx")
    assert caches.grown() == ("Triton's cache",)
    kernel.unlink()  # cleaned up: nothing is compiled by that
    assert caches.grown() == ()


def test_only_whole_paths_are_looked_at() -> None:
    assert places({"TRITON_CACHE_DIR": "relative", "SGLANG_CACHE_DIR": ""}) == {}
    found = places({"FLASHINFER_WORKSPACE_BASE": "/c"})
    assert found == {"FlashInfer's cache": "/c/.cache/flashinfer"}
