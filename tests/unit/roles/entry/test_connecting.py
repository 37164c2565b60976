"""Who is connected to, and what a person is told before: under the real pyinfra, over @local.

Each run of pyinfra is one to three seconds of processor time: those that look at a corner are slow.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko
import pytest

from roles.inventory import Secret
from roles.inventory.errors import Need
from roles.inventory.secret import SecretError
from tests.support.inventory_case import engine_text, load, only

ROOT = Path(__file__).parents[4]
GOOD = '"@local": {engines: {e: {model: {path: /m}}}}'
CONNECTED = "[@local] Connected"
NOT_THE_INVENTORY = "needs a host that is run by systemd"
"""How our deploys end on this machine, when nothing else is wrong."""
COMMIT = "0" * 40


@dataclass
class Done:
    status: int
    text: str
    """What a person sees, runs of spaces as one."""
    reports: list[dict[str, Any]]

    def order(self, *texts: str) -> list[str]:
        """These texts in the order in which they come first."""
        return sorted(texts, key=lambda one: self.text.find(one) % (1 << 30))


class Desk:
    """A folder with an inventory, where pyinfra is run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, *hosts: str, more: str = "") -> None:
        text = "hosts:\n" + textwrap.indent("\n".join(hosts), "  ") + "\n" + more
        (self.folder / "hosts.yml").write_text(text)

    def run(self, *arguments: str, stdin: int = subprocess.DEVNULL, **environ: str) -> Done:
        clean = {key: value for key, value in os.environ.items() if key != "SGLANG_INVENTORY"}
        clean |= {
            "PYTHONPATH": str(ROOT),
            "PYINFRA_PROGRESS": "off",
            "SGLANG_INVENTORY": str(self.folder / "hosts.yml"),
            "HOME": str(self.folder),
        }
        done = subprocess.run(
            [sys.executable, "-m", "pyinfra", str(ROOT / "inventory.py"), *arguments],
            cwd=self.folder,
            env={**clean, **environ},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=110,
            check=False,
        )
        reports = sorted(self.folder.glob("reports/*/report.json"))
        return Done(
            done.returncode,
            re.sub(r" +", " ", done.stdout),
            [json.loads(path.read_text()) for path in reports],
        )

    def deploy(self, name: str, *arguments: str, **environ: str) -> Done:
        return self.run(str(ROOT / "deploys" / f"{name}.py"), *(arguments or ("-y",)), **environ)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.mark.slow
def test_all_mistakes_of_all_hosts_come_before_the_first_connection(desk: Desk) -> None:
    # Nothing listens there: the connection alone would say nothing of the mistakes.
    desk.write(
        GOOD,
        "one: {ssh: {hostname: 127.0.0.1, port: 1}, engines: {e: {prot: 1, model: {path: m}}}}",
        "two: {ssh: {hostname: 127.0.0.1, port: 1}, engines: {e: {model: {path: /m}, "
        "flags: {wobble: 1}, api_key: {env: NOT_SET}}}}",
    )
    done = desk.deploy("sglang")
    told = [
        "hosts.one.engines.e.model.path: found",
        "hosts.one.engines.e.prot: found",
        "hosts.two.engines.e.flags.wobble: found",
        "hosts.two.engines.e.api_key: found environment variable NOT_SET",
    ]
    assert all(text in done.text for text in told), done.text
    assert done.order(CONNECTED, *told)[-1] == CONNECTED
    assert "Could not connect" not in done.text
    assert done.text.count(told[0]) == 1
    assert done.status == 1


@pytest.mark.slow
def test_only_the_wrong_host_is_left_out_and_it_is_in_the_report(desk: Desk) -> None:
    desk.write(GOOD, "wrong: {engines: {e: {model: {path: /m}, prot: 1}}}")
    done = desk.deploy("sglang")
    assert CONNECTED in done.text and NOT_THE_INVENTORY in done.text
    assert "[wrong] not connected to: the inventory is wrong, see above" in done.text
    hosts = {host["host"]: host for host in done.reports[0]["report"]}
    assert hosts["wrong"]["outcome"] == "failed"
    assert 'did you mean "port"?' in hosts["wrong"]["messages"][0]


@pytest.mark.slow
def test_a_run_that_reaches_no_host_has_a_report_and_a_last_screen(desk: Desk) -> None:
    away = "ssh: {hostname: 127.0.0.1, port: 1}"
    desk.write(
        f"away: {{{away}, engines: {{e: {{model: {{path: /m}}}}}}}}",
        f"wrong: {{{away}, engines: {{e: {{model: {{path: /m}}, prot: 1}}}}}}",
    )
    done = desk.deploy("sglang", "-y", "--data", "restart=never", "--data", "mine=secret")
    (report,) = done.reports
    hosts = {host["host"]: host for host in report["report"]}
    assert (hosts["away"]["outcome"], hosts["wrong"]["outcome"]) == ("unreachable", "failed")
    (message,) = hosts["away"]["messages"]
    assert "cannot be connected to: " in message and "`ssh -v`" in message
    assert "what failed: cannot be connected to" in done.text
    assert "deploys/sglang.py --limit away --data restart=never\n" in done.text
    assert "mine" not in done.text
    assert done.status == 1


@pytest.mark.slow
def test_hosts_that_are_not_asked_for_are_not_told_of(desk: Desk) -> None:
    desk.write(GOOD, "wrong: {engines: {e: {model: {path: /m}, prot: 1}}}")
    done = desk.deploy("sglang", "-y", "--limit", "@local")
    assert "[wrong]" not in done.text and CONNECTED in done.text


@pytest.mark.slow
def test_nobody_is_asked_where_nobody_can_answer(desk: Desk) -> None:
    # pyinfra asks whether to go on without the failed hosts, and ends on the end of its input.
    desk.write(GOOD, "wrong: {engines: {e: {model: {path: /m}, prot: 1}}}")
    done = desk.deploy("sglang", "--dry")
    assert NOT_THE_INVENTORY in done.text
    assert "continue?" not in done.text and "EOFError" not in done.text
    assert done.status == 1


@pytest.mark.slow
def test_who_sets_a_limit_of_failures_keeps_it(desk: Desk) -> None:
    desk.write(GOOD, "wrong: {engines: {e: {model: {path: /m}, prot: 1}}}")
    done = desk.deploy("sglang", "-y", "--fail-percent", "10")
    assert "Over 10% of hosts failed" in done.text and NOT_THE_INVENTORY not in done.text
    assert done.status == 1


WRONG_FILES = (
    "api_key: {env: NOT_SET}, flags: {admin-api-key: {file: gone}}, "
    f"kernel: {{patches: [gone.patch], git: {{commit: '{COMMIT}'}}}}"
)
WRONG = "prot: 1, model: {path: relative}, nccl: {overrides: {NCCL_PROTO: x}}"


@pytest.mark.parametrize(
    ("deploy", "body", "goes_on"),
    [
        pytest.param("stop", f"{WRONG_FILES}, {WRONG}", True, marks=pytest.mark.slow),
        pytest.param("remove", f"{WRONG_FILES}, {WRONG}", True, marks=pytest.mark.slow),
        pytest.param("verify", WRONG_FILES, True, marks=pytest.mark.slow),
        pytest.param("verify", WRONG, False, marks=pytest.mark.slow),
        ("sglang", f"{WRONG_FILES}, {WRONG}", False),
    ],
)
def test_what_a_deploy_needs_of_the_inventory(
    desk: Desk, deploy: str, body: str, goes_on: bool
) -> None:
    desk.write(
        f'"@local": {{engines: {{e: {{{body}}}}}}}', more="engines: {e: {model: {path: /m}}}"
    )
    done = desk.deploy(deploy)
    number = 3 * (WRONG_FILES in body) + 3 * (WRONG in body)
    if goes_on:
        assert CONNECTED in done.text and f"{deploy} {NOT_THE_INVENTORY}" in done.text, done.text
        assert f"note: {number} mistakes in the inventory left alone" in done.text
        assert "the inventory is wrong" not in done.text
    else:
        assert CONNECTED not in done.text and "not connected to: the inventory" in done.text
        assert done.text.count("; allowed: ") == number
    assert done.status == 1


@pytest.mark.parametrize(
    ("body", "need"),
    [
        ("api_key: {env: NOT_SET}", Need.FILES),
        ("api_key: {file: gone}", Need.FILES),
        ("flags: {admin-api-key: {env: NOT_SET}}", Need.FILES),
        (f"kernel: {{patches: [gone.patch], git: {{commit: '{COMMIT}'}}}}", Need.FILES),
        ("flags: {wobble: 1}", Need.ENGINES),
        ("prot: 1", Need.ENGINES),
        ("model: {path: relative}", Need.ENGINES),
        ("nccl: {overrides: {NCCL_PROTO: LLL}}", Need.ENGINES),
    ],
)
def test_what_needs_an_engine_to_be_right(body: str, need: Need) -> None:
    text = engine_text(body) if "model" not in body else engine_text("", model="{path: relative}")
    entry = only(load(text))
    assert [one.need for one in entry.mistakes] == [need]
    assert entry.engines == ("e",)
    assert (entry.spec is None) == (need < Need.FILES)


@pytest.mark.parametrize(
    ("host", "need"),
    [
        ("{ssh: {port: 0}, engines: {e: {model: {path: /m}}}}", Need.HOST),
        ("{ssh: 5, engines: {e: {model: {path: /m}}}}", Need.HOST),
        ("{sudo: 1, engines: {e: {model: {path: /m}}}}", Need.HOST),
        ("{engines: }", Need.HOST),
        ("{}", Need.HOST),
        ("5", Need.HOST),
        ("{protected: 1, engines: {e: {model: {path: /m}}}}", Need.ENGINES),
        ("{sude: true, engines: {e: {model: {path: /m}}}}", Need.ENGINES),
        ("{engines: {E: {model: {path: /m}}, e: {model: {path: /m}, port: 1}}}", Need.ENGINES),
    ],
)
def test_what_needs_a_host_to_be_right(host: str, need: Need) -> None:
    entry = only(load(f"hosts: {{h: {host}}}"))
    assert min(one.need for one in entry.mistakes) == need
    assert entry.engines == (("e",) if "e: {" in host else ())


def test_a_secret_that_was_not_read_says_so_when_it_is_asked_for() -> None:
    entry = only(load(engine_text("api_key: {env: NOT_SET}")))
    assert entry.spec is not None
    key = entry.spec.engines[0].api_key
    assert key is not None and key != Secret("")
    with pytest.raises(SecretError, match="variable NOT_SET is not set on the controller"):
        key.reveal()


@pytest.mark.slow
def test_a_stop_needs_the_way_to_the_host(desk: Desk) -> None:
    desk.write(GOOD, "h: {ssh: {port: 0}, engines: {e: {model: {path: /m}}}}", "i: {engines: }")
    done = desk.deploy("stop")
    assert "hosts.h.ssh.port: found 0" in done.text
    assert "hosts.i.engines: found nothing" in done.text
    assert done.text.count("not connected to: the inventory is wrong") == 2
    assert f"[@local] stop {NOT_THE_INVENTORY}" in done.text


@pytest.mark.slow
def test_a_deploy_file_of_another_name_says_itself_what_it_needs(desk: Desk) -> None:
    desk.write(
        '"@local": {engines: {e: {model: {path: /m}, prot: 1}}}',
    )
    (desk.folder / "emergency.py").write_text(
        "from roles.stages import existing_host\nexisting_host('stop')\n"
    )
    (desk.folder / "mine.py").write_text(
        "from roles.stages import desired_host\ndesired_host('mine')\n"
    )
    done = desk.run("emergency.py", "-y")
    assert f"stop {NOT_THE_INVENTORY}" in done.text
    done = desk.run("mine.py", "-y")
    told = "hosts.@local.engines.e.prot: found".replace("@local", '"@local"')
    assert done.order(told, CONNECTED) == [told, CONNECTED]
    assert "the inventory is wrong, nothing was changed:" in done.text and done.status == 1


def key_file(path: Path, passphrase: str | None = None) -> Path:
    paramiko.ECDSAKey.generate().write_private_key_file(str(path), password=passphrase)
    return path


@pytest.mark.slow
def test_a_key_of_one_host_does_not_end_the_run(desk: Desk) -> None:
    key_file(desk.folder / "locked", "secret-phrase")
    (desk.folder / "no_key").write_text("ssh-ed25519 AAAA someone\n")
    hosts = [
        f"{name}: {{ssh: {{key: {name}}}, engines: {{e: {{model: {{path: /m}}}}}}}}"
        for name in ("gone", "locked", "no_key")
    ]
    desk.write(GOOD, *(line.replace("no_key:", "no-key:", 1) for line in hosts))
    done = desk.run("-y", "exec", "--", "echo", "reached")
    assert "[@local] reached" in done.text and done.status == 1
    assert f'found "{desk.folder}/gone", which does not exist; allowed: a private key' in done.text
    assert f'found "{desk.folder}/locked", which is locked with a passphrase' in done.text
    assert f'found "{desk.folder}/no_key", which is no private key' in done.text
    assert "Traceback" not in done.text and "exception" not in done.text


@pytest.mark.slow
def test_a_key_from_the_command_line_is_used_instead(desk: Desk) -> None:
    key = key_file(desk.folder / "mine")
    desk.write(
        "h: {ssh: {key: gone, hostname: 127.0.0.1, port: 1}, engines: {e: {model: {path: /m}}}}"
    )
    done = desk.run("--ssh-key", str(key), "-y", "exec", "--", "true")
    assert "the inventory is wrong" not in done.text
    assert "Could not connect" in done.text


@pytest.mark.parametrize(
    "config",
    ["Host *\n Port abc\n", pytest.param("Host *\n  ProxyJump :x\n", marks=pytest.mark.slow)],
)
def test_an_ssh_configuration_that_pyinfra_cannot_bear_hits_its_host_alone(
    desk: Desk, config: str
) -> None:
    (desk.folder / "ssh_config").write_text(config)
    desk.write(GOOD, "h: {ssh: {config: ssh_config}, engines: {e: {model: {path: /m}}}}")
    done = desk.run("-y", "exec", "--", "echo", "reached")
    assert "[@local] reached" in done.text and done.status == 1
    assert "[h] cannot be connected to: " in done.text
    assert "check `ssh` of this host in the inventory" in done.text
    assert "Traceback" not in done.text and "exception" not in done.text


@pytest.mark.slow
def test_a_name_that_its_connector_cannot_read_hits_its_host_alone(desk: Desk) -> None:
    desk.write(
        GOOD,
        '"@dockerssh/h": {engines: {e: {model: {path: /m}}}}',
        '"@dokcer/x": {engines: {e: {model: {path: /m}}}}',
        '"@dokcer x": {engines: {e: {model: {path: /m}}}}',
    )
    done = desk.run("-y", "exec", "--", "echo", "reached")
    assert "[@local] reached" in done.text and done.status == 1
    assert done.text.count("found the host name") == 3
    assert done.text.count("not connected to: the inventory is wrong") == 3


@pytest.mark.slow
def test_a_template_that_cannot_be_rendered_is_told_before_the_connection(desk: Desk) -> None:
    desk.write(GOOD)
    (desk.folder / "inv.py").write_text(
        "from roles.entry.hosts import pyinfra_hosts\n"
        "import roles.stages.desired\n"
        "def broken(engine): raise ValueError('no such value')\n"
        "roles.stages.desired.desired_engine = broken\n"
        "hosts = pyinfra_hosts()\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pyinfra", "inv.py", str(ROOT / "deploys/sglang.py"), "-y"],
        cwd=desk.folder,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "SGLANG_INVENTORY": str(desk.folder / "hosts.yml"),
        },
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=110,
        check=False,
    )
    assert "what it describes cannot be rendered: no such value" in done.stderr
    assert "Connected" not in done.stderr and done.returncode == 1
