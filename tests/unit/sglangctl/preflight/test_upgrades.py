"""Unattended upgrades and NVIDIA's driver, by the files that apt and dpkg keep."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglangctl.preflight import upgrades

ON = 'APT::Periodic::Update-Package-Lists "1";\nAPT::Periodic::Unattended-Upgrade "1";\n'
EXAMPLES = """\
// Packages that are never upgraded
Unattended-Upgrade::Package-Blacklist {
    // "nvidia";
//  "linux-image";
};
"""


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Ubuntu with its own driver packages."""
    settings = tmp_path / "etc/apt/apt.conf.d"
    settings.mkdir(parents=True)
    (settings / "20auto-upgrades").write_text(ON)
    (settings / "50unattended-upgrades").write_text(EXAMPLES)
    info = tmp_path / "var/lib/dpkg/info"
    info.mkdir(parents=True)
    for name in ("nvidia-driver-580-open", "libnvidia-compute-580:amd64", "nvidia-utils-580"):
        (info / f"{name}.list").write_text("")
    status = "Package: nvidia-driver-580-open\nStatus: install ok installed\n\n"
    (tmp_path / "var/lib/dpkg/status").write_text(status)
    return tmp_path


def test_an_upgrade_that_would_replace_the_driver(host: Path) -> None:
    (found,) = upgrades.look(host)
    assert (found.id, found.level) == ("driver-upgrades", "warn")
    assert found.fix == "apt-mark hold libnvidia-compute-580 nvidia-driver-580-open"


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("etc/apt/apt.conf.d/20auto-upgrades", ON.replace('Upgrade "1"', 'Upgrade "0"')),
        ("etc/apt/apt.conf.d/20auto-upgrades", ""),
        ("etc/apt/apt.conf.d/99mine", 'APT::Periodic::Unattended-Upgrade "0";'),
        ("etc/apt/apt.conf.d/50unattended-upgrades", EXAMPLES.replace("// ", "") + '"(";'),
        (
            "etc/apt/apt.conf.d/99mine",
            'Unattended-Upgrade::Package-Blacklist { "nvidia-"; "("; "libnvidia-"; };',
        ),
        (
            "var/lib/dpkg/status",
            "Package: nvidia-driver-580-open\nStatus: hold ok installed\n\n"
            "Package: libnvidia-compute-580\nStatus: hold ok installed\n",
        ),
    ],
)
def test_the_driver_is_left_alone(host: Path, file: str, text: str) -> None:
    if "50" in file:  # "nvidia" alone matches from the beginning: the library is not among them
        (host / "var/lib/dpkg/info/libnvidia-compute-580:amd64.list").unlink()
    (host / file).write_text(text)
    assert not list(upgrades.look(host))


def test_what_apt_does_not_read_and_a_host_without_apt(host: Path, tmp_path: Path) -> None:
    (host / "etc/apt/apt.conf.d/20auto-upgrades.dpkg-old").write_text(
        ON.replace('Upgrade "1"', 'Upgrade "0"')
    )
    assert list(upgrades.look(host))
    assert not list(upgrades.look(tmp_path / "nothing"))
