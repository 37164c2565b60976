"""The engine image: what a GPU cloud image carries, and the model, but not the engine."""

from __future__ import annotations

import json

import pytest

from tests.hosts.host import Host

pytestmark = pytest.mark.container


@pytest.fixture(scope="module")
def host(module_host_factory) -> Host:
    return module_host_factory("host", image="engine")


def test_the_engine_itself_is_left_to_the_deploy(host: Host) -> None:
    done = host.exec("python3", "-c", "import sglang", check=False)
    assert "No module named 'sglang'" in done.stderr


def test_a_venv_with_site_packages_finds_the_dependencies(host: Host) -> None:
    host.exec("python3", "-m", "venv", "--system-site-packages", "/opt/venv")
    script = "import torch, torchvision, transformers, triton; print(torch.__version__)"
    done = host.exec("/opt/venv/bin/python", "-c", script, user="debian")
    assert done.stdout.startswith("2.13.0")


def test_bytecode_is_there_so_that_a_service_user_does_not_compile_at_every_start(
    host: Host,
) -> None:
    script = "import torch, os; print(os.path.exists(torch.__cached__))"
    assert host.exec("python3", "-c", script, user="debian").stdout.strip() == "True"


def test_any_user_can_read_the_model_and_it_has_several_shards(host: Host) -> None:
    done = host.exec("cat", "/models/tiny-qwen3/model.safetensors.index.json", user="debian")
    shards = set(json.loads(done.stdout)["weight_map"].values())
    assert len(shards) == 6
    for shard in shards:
        host.exec("test", "-r", f"/models/tiny-qwen3/{shard}", user="debian")


def test_no_setting_of_the_build_machine_is_left_in_the_image(host_factory) -> None:
    bare = host_factory("bare", image="engine", pip=False)
    assert bare.exec("test", "-e", "/etc/pip.conf", check=False).returncode == 1
    assert bare.exec("ls", "/build", "/build-cache", check=False).stdout.split() == [
        "/build-cache:"
    ]
