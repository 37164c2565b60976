"""A container host's pip works as the controller's does: translation of `pip config list`."""

from __future__ import annotations

from pathlib import Path

from tests.hosts.pip_settings import FOLDER, translate


def test_environment_wins_over_files_and_other_sections_count() -> None:
    listing = (
        ":env:.default-timeout='60'\n"
        "global.index-url='https://file.example/simple'\n"
        ":env:.index-url='https://env.example/simple'\n"
        "install.trusted-host='file.example'\n"
    )
    settings = translate(listing, {})
    assert settings.config == (
        "[global]\n"
        "index-url = https://env.example/simple\n"
        "trusted-host = file.example\n"
        "timeout = 60\n"
    )


def test_what_is_this_machines_own_business_is_left_out() -> None:
    listing = "global.require-virtualenv='true'\nglobal.target='/x'\nfreeze.timeout='10'\n"
    assert translate(listing, {}).config == "[global]\n"


def test_local_folders_are_bound_at_their_place_and_files_are_copied(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    (tmp_path / "index/simple").mkdir(parents=True)
    (tmp_path / "pins.txt").write_text("torch<3\n")
    listing = (
        f"global.find-links='{tmp_path}/wheels https://links.example/x.html'\n"
        f"global.extra-index-url='file://{tmp_path}/index/simple\\nhttps://more.example/simple'\n"
        f"global.constraint='{tmp_path}/pins.txt'\n"
    )
    settings = translate(listing, {})
    # The index's links lead out of its folder: the folder above is bound.
    assert dict(settings.mounts) == {
        tmp_path / "index": f"{tmp_path}/index",
        tmp_path / "wheels": f"{tmp_path}/wheels",
    }
    assert settings.files == ((tmp_path / "pins.txt", f"{FOLDER}/0-pins.txt"),)
    assert (
        f"extra-index-url = file://{tmp_path}/index/simple\n    https://more.example/simple\n"
        in settings.config
    )
    assert f"find-links = {tmp_path}/wheels\n    https://links.example/x.html\n" in settings.config
    assert f"constraint = {FOLDER}/0-pins.txt\n" in settings.config


def test_a_certificate_authority_and_a_proxy_of_the_environment_are_handed_in(
    tmp_path: Path,
) -> None:
    (tmp_path / "ca.crt").write_text("-----BEGIN CERTIFICATE-----\n")
    environment = {
        "REQUESTS_CA_BUNDLE": str(tmp_path / "ca.crt"),
        "SSL_CERT_FILE": "/elsewhere",
        "https_proxy": "http://proxy.example:3128",
    }
    settings = translate("", environment)
    assert settings.config == (
        f"[global]\ncert = {FOLDER}/0-ca.crt\nproxy = http://proxy.example:3128\n"
    )
    assert translate(f"global.cert='{tmp_path}/ca.crt'\n", {}).files == settings.files


def test_a_setting_that_names_a_missing_file_is_dropped(tmp_path: Path) -> None:
    assert translate(f"global.constraint='{tmp_path}/gone'\n", {}).config == "[global]\n"


def test_a_machine_without_settings() -> None:
    settings = translate("", {})
    assert (settings.config, settings.files, settings.mounts) == ("[global]\n", (), ())
