"""Our lines in a prometheus.yml of somebody else: every line of theirs stays."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from roles.monitoring import files
from roles.monitoring.insertion import BEGIN, END, CannotInsert, with_items, without_ours
from tests.support.prometheus import CACHED, program

DEBIAN = """\
# Sample config for Prometheus.

global:
  scrape_interval:     15s # Default is every 1 minute.

alerting:
  alertmanagers:
  - static_configs:
    - targets: ['localhost:9093']

# Load rules once.
rule_files:
  # - "first_rules.yml"
  # - "second_rules.yml"

scrape_configs:
  # The job name is a label.
  - job_name: 'prometheus'
    static_configs:
      - targets: ['localhost:9090']
"""
OWN = """\
scrape_configs:
- job_name: mine
  basic_auth: {username: me, password: "s3cret # no comment"}
  static_configs: [{targets: [a:1]}]
- job_name: other
remote_write:
- url: http://x
"""
TEXTS = {
    "of Debian": DEBIAN,
    "without rules, not indented": OWN,
    "without a line break at its end": OWN.rstrip("\n"),
    "empty": "",
    "comments alone": "# nothing yet\n",
    "without the last item's value": "global: {}\nscrape_configs:",
    "with an item that spans lines": "rule_files:\n    - |\n      a\n    - b\nglobal: {}\n",
    "in Windows' line ends": DEBIAN.replace("\n", "\r\n"),
}  # fmt: skip


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_every_line_of_theirs_stays(text: str) -> None:
    found = with_items(text, files.ITEMS)
    assert [line for line in without_ours(found).splitlines() if line not in ("rule_files:",)] == [
        line for line in text.splitlines() if line not in ("rule_files:",)
    ]
    before, after = yaml.safe_load(text) or {}, yaml.safe_load(found)
    for key, ours in files.ITEMS.items():
        assert after.pop(key) == [*ours, *(before.pop(key, None) or [])]
    assert after == before


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_second_time_changes_nothing_and_takes_back_what_was(text: str) -> None:
    found = with_items(text, files.ITEMS)
    assert with_items(found, files.ITEMS) == found
    other = {**files.ITEMS, "rule_files": ["/elsewhere"]}
    assert with_items(with_items(text, other), files.ITEMS) == found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("scrape_configs: [{job_name: a}]\n", "scrape_configs is no list with an item a line"),
        ("rule_files: []\n", "rule_files is no list"),
        ("rule_files: {a: b}\n", "rule_files is no list"),
        ("rule_files: null\n", "rule_files is no list"),
        ("{rule_files: }\n", "no mapping with a key a line"),
        ("- a\n", "no mapping with a key a line"),
        ("password: s3cret: x\n", "it is not YAML (mapping values are not allowed here)"),
        ("a: &a [1]\nrule_files: *a\n", "rule_files is no list"),
        ("a: &a\n  - b\nrule_files: *a\n", "more changes others"),
        ("global: {}\n...\n", "more changes others"),
        (f"global: {{}}\n{BEGIN}\n", "one of our two marks"),
        (f"{END}\n", "one of our two marks"),
    ],
)  # fmt: skip
def test_what_cannot_be_changed_safely_is_left_alone(text: str, why: str) -> None:
    with pytest.raises(CannotInsert) as raised:
        with_items(text, files.ITEMS)
    assert why in str(raised.value) and "s3cret" not in str(raised.value)


@given(st.text(alphabet="ab:-#\n []{}'\"|&*", max_size=40))
def test_whatever_the_text_is_it_is_kept_or_refused(text: str) -> None:
    try:
        found = with_items(text, {"a": ["x"]})
    except CannotInsert:
        return
    before, after = yaml.safe_load(text) or {}, yaml.safe_load(found)
    assert after == {**before, "a": ["x", *(before.get("a") or [])]}
    assert with_items(found, {"a": ["x"]}) == found


def test_prometheus_takes_the_result_of_debians_own_file(tmp_path: Path) -> None:
    promtool = program("promtool")
    debian = CACHED.parents[1] / "etc/prometheus/prometheus.yml"
    text = debian.read_text() if debian.exists() else DEBIAN
    for one in (files.rules(), *(item for item in targets() if item.path.endswith(".json"))):
        (tmp_path / Path(one.path).name).write_bytes(one.content)
    config = tmp_path / "prometheus.yml"
    changed = with_items(text, files.ITEMS).replace(files.FOLDER, str(tmp_path))
    config.write_text(changed)
    done = subprocess.run([promtool, "check", "config", config], capture_output=True, text=True)
    assert done.returncode == 0 and "29 rules found" in done.stdout, done.stdout + done.stderr


def targets() -> list[files.ManagedFile]:
    from roles.monitoring.targets import Monitoring, Target

    engines = (Target("127.0.0.1:8000", "g1", "chat"),)
    found = files.targets(Monitoring("g1", engines, (Target("[::1]:9100", "g1"),), (), ()))
    return [one for one in found if isinstance(one, files.ManagedFile)]
