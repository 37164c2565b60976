"""cgroup v1, hybrid and v2 as real machines write them, and containers seen from outside."""

from __future__ import annotations

import pytest

from sglangctl.proc.membership import of_text

ID = "ab12" * 16


def v1(path: str) -> str:
    return f"12:devices:{path}\n5:memory:{path}\n1:name=systemd:{path}\n"


def hybrid(path: str) -> str:
    return v1(path) + f"0::{path}\n"


def hybrid_here(path: str) -> str:
    return v1(path).replace("5:memory:" + path, "5:memory:/elsewhere") + "0::/\n"


def v2(path: str) -> str:
    return f"0::{path}\n"


@pytest.mark.parametrize("layout", [v1, hybrid, hybrid_here, v2])
@pytest.mark.parametrize(
    ("path", "unit", "system_unit"),
    [
        ("/system.slice/vllm-kimi.service", "vllm-kimi.service", "vllm-kimi.service"),
        ("/system.slice/system-sglang.slice/sglang-a.service/sub", *["sglang-a.service"] * 2),
        ("/user.slice/user-1000.slice/session-3.scope", *["session-3.scope"] * 2),
        # A user's unit of the same name is not the system's unit.
        (
            "/user.slice/user-1000.slice/user@1000.service/app.slice/vllm-kimi.service",
            "vllm-kimi.service",
            "user@1000.service",
        ),
        ("/", None, None),
        ("/init.scope", "init.scope", "init.scope"),
    ],
)
def test_units(layout, path: str, unit: str | None, system_unit: str | None) -> None:
    found = of_text(layout(path))
    assert (found.unit, found.system_unit) == (unit, system_unit)
    assert found.container is None


@pytest.mark.parametrize("layout", [v1, hybrid, v2])
@pytest.mark.parametrize(
    ("path", "unit", "engine"),
    [
        (f"/docker/{ID}", None, "docker"),
        # What runs inside has units, but they are not this machine's.
        (f"/docker/{ID}/system.slice/vllm-kimi.service", None, "docker"),
        (f"/system.slice/docker-{ID}.scope", f"docker-{ID}.scope", "docker"),
        (
            f"/system.slice/docker-{ID}.scope/system.slice/vllm-kimi.service",
            f"docker-{ID}.scope",
            "docker",
        ),
        (f"/machine.slice/libpod-{ID}.scope/container", f"libpod-{ID}.scope", "podman"),
        (f"/kubepods.slice/kubepods-burstable.slice/cri-containerd-{ID}.scope", None, "nerdctl"),
        (f"/kubepods/burstable/pod1/{ID}", None, None),
    ],
)
def test_containers(layout, path: str, unit: str | None, engine: str | None) -> None:
    found = of_text(layout(path))
    assert found.container == ID
    assert found.container_engine == engine
    if unit:
        assert found.system_unit == unit
    assert "vllm-kimi.service" not in (found.unit, found.system_unit)


@pytest.mark.parametrize("layout", [v1, hybrid, v2])
@pytest.mark.parametrize(
    "name", [f"docker-{ID}.scope", f"libpod-{ID}.scope", ID, f"{ID}/x.service"]
)
def test_a_user_is_in_no_container_by_a_name_of_theirs(layout, name: str) -> None:
    """Anybody can make a cgroup below their own manager and call it after the container that the
    inventory replaces: that was stopped, and the GPU not free."""
    found = of_text(layout(f"/user.slice/user-1000.slice/user@1000.service/app.slice/{name}"))
    assert (found.container, found.container_engine) == (None, None)
    assert found.system_unit == "user@1000.service"


def test_inside_a_container_that_shares_the_machines_cgroups_units_are_ours() -> None:
    root = f"/docker/{ID}"
    found = of_text(v1(f"{root}/system.slice/vllm-kimi.service"), root)
    assert (found.unit, found.system_unit) == ("vllm-kimi.service", "vllm-kimi.service")
    assert found.container is None


def test_nothing_is_known_of_a_process_that_is_gone() -> None:
    found = of_text("")
    assert (found.unit, found.system_unit, found.container) == (None, None, None)
