"""Each alert, as promtool evaluates it: when it fires, with what text, and when it does not."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from roles.inventory.shipped import TEMPLATES
from tests.support.prometheus import program

RULES = TEMPLATES / "monitoring" / "rules.yml"
NODE, ENGINE = 'job="sglang-node",host="g1"', 'job="sglang",host="g1",engine="chat"'
OURS = f'{NODE},engine="chat"'
FILE = "/var/lib/prometheus/node-exporter/sglang-chat.prom"


@dataclass(frozen=True)
class Case:
    """Series (name{labels}: values, one a minute, in promtool's notation) and what comes of them."""

    fires: dict[str, str]
    quiet: tuple[dict[str, str], ...]
    labels: dict[str, str]
    summary: str
    next_step: str
    at: str = "20m"
    severity: str = "warning"


def outcome(name: str, values: str) -> dict[str, str]:
    return {f'sglang_engine_outcome{{{OURS},outcome="{name}"}}': values}


def running(values: str) -> dict[str, str]:
    return {f"sglang:num_running_reqs{{{ENGINE}}}": values}


def responses(errors: str, well: str, endpoint: str = "/v1/completions") -> dict[str, str]:
    of = f'{ENGINE},endpoint="{endpoint}"'
    return {
        f'sglang:http_responses_total{{{of},status_code="500"}}': errors,
        f'sglang:http_responses_total{{{of},status_code="200"}}': well,
    }


def first_token(quick: str, slow: str) -> dict[str, str]:
    """Requests of at most 1 s, and those of up to 20 s."""
    name = "sglang:time_to_first_token_seconds_bucket"
    return {
        f'{name}{{{ENGINE},le="1.0"}}': quick,
        f'{name}{{{ENGINE},le="20.0"}}': slow,
        f'{name}{{{ENGINE},le="+Inf"}}': slow,
    }


def gpu(metric: str, index: int, values: str) -> dict[str, str]:
    return {f'sglang_gpu_{metric}{{{OURS},gpu="{index}"}}': values}


def held(kind: str, values: str) -> dict[str, str]:
    return {f'sglang_gpu_holder_memory_bytes{{{NODE},gpu="3",class="{kind}"}}': values}


def disk(free: str, kind: str = "ext4") -> dict[str, str]:
    of = f'{NODE},mountpoint="/var",fstype="{kind}",device="/dev/sda1"'
    return {
        f"node_filesystem_avail_bytes{{{of}}}": free,
        f"node_filesystem_size_bytes{{{of}}}": "100x30",
    }


def drafter(length: str, tokens: str) -> dict[str, str]:
    return {
        f"sglang:spec_accept_length{{{ENGINE}}}": length,
        f"sglang:generation_tokens_total{{{ENGINE}}}": tokens,
    }


NODE_LABELS = {"job": "sglang-node", "host": "g1"}
OUR_LABELS = {**NODE_LABELS, "engine": "chat"}
OF_ENGINE = {"host": "g1", "engine": "chat"}
STATUS = "on g1: sglangctl status chat"
CASES = {
    "SglangHostUnreachable": Case(
        {f'up{{{NODE},instance="g1:9100"}}': "1x5 0x20"},
        (
            {f'up{{{NODE},instance="g1:9100"}}': "1x17 0x2"},  # not for three minutes yet
            {'up{job="node",host="g1",instance="g1:9100"}': "0x30"},  # somebody else's job
        ),
        {**NODE_LABELS, "instance": "g1:9100"},
        "g1 does not answer at g1:9100",
        "is the host up? Then on it: systemctl status prometheus-node-exporter; a firewall in between?",
        severity="critical",
    ),
    "SglangEngineDown": Case(
        {**outcome("failed", "0x10 1x20"), **outcome("ready", "1x10 0x20")},
        (outcome("ready", "1x30"), outcome("pending", "1x30"), outcome("failed", "0x20 1x20")),
        {**OUR_LABELS, "outcome": "failed"},
        "chat on g1: failed",
        f"{STATUS} (cause and next step)",
        severity="critical",
    ),
    "SglangEngineRestarts": Case(
        {f"sglang_engine_restarts{{{OURS}}}": "0x10 1x4 2x4 3x20"},
        (
            {f"sglang_engine_restarts{{{OURS}}}": "3x30"},
            {f"sglang_engine_restarts{{{OURS}}}": "3x5 0x30"},  # the unit was started anew
        ),
        OUR_LABELS,
        "chat on g1 was restarted 3 times in 30 minutes",
        "on g1: sglangctl journal chat --list",
        at="30m",
        severity="critical",
    ),
    "SglangEngineDegraded": Case(
        outcome("degraded", "1x30"),
        (outcome("degraded", "0x15 1x30"), outcome("ready", "1x30")),
        {**OUR_LABELS, "outcome": "degraded"},
        "chat on g1 serves, and not as declared",
        STATUS,
    ),
    "SglangWatchSilent": Case(
        {f'node_textfile_mtime_seconds{{{NODE},file="{FILE}"}}': "60x30"},
        (
            {f'node_textfile_mtime_seconds{{{NODE},file="{FILE}"}}': "0+60x30"},
            {f'node_textfile_mtime_seconds{{{NODE},file="/x/apt.prom"}}': "60x30"},
        ),
        {**OUR_LABELS, "file": FILE},
        "the watch of chat on g1 writes no metrics: what is known of the engine is old",
        "on g1: systemctl status sglang-watch@chat",
    ),
    "SglangMetricsUnreadable": Case(
        {f"node_textfile_scrape_error{{{NODE}}}": "1x30"},
        ({f"node_textfile_scrape_error{{{NODE}}}": "0x30"},),
        NODE_LABELS,
        "node_exporter on g1 cannot read a file of its textfile folder",
        "on g1: journalctl -u prometheus-node-exporter",
    ),
    "SglangEngineNotScraped": Case(
        {f'up{{{ENGINE},instance="g1:8000"}}': "0x30", **outcome("ready", "1x30")},
        (
            {f'up{{{ENGINE},instance="g1:8000"}}': "1x30", **outcome("ready", "1x30")},
            # It starts, or was stopped: others tell of that.
            {f'up{{{ENGINE},instance="g1:8000"}}': "0x30", **outcome("pending", "1x30")},
            {f'up{{{ENGINE},instance="g1:8000"}}': "0x30"},
        ),
        {"job": "sglang", **OF_ENGINE, "instance": "g1:8000"},
        "chat on g1 serves, and Prometheus cannot read g1:8000/metrics",
        "look at `listen`, the flag enable-metrics and the firewall",
    ),
    "SglangServerErrors": Case(
        responses("0+10x30", "0+90x30"),
        (
            responses("0+1x30", "0+99x30"),
            responses("0+90x30", "0+10x30", "/health"),  # asked by the watch, also while it starts
            responses("0x30", "0x30"),
        ),
        OF_ENGINE,
        "chat on g1 answers 10% of its requests with an error of its own",
        "on g1: sglangctl logs chat",
        severity="critical",
    ),
    "SglangRequestsWait": Case(
        {f'sglang:num_queue_reqs{{{ENGINE},tp_rank="{rank}"}}': "7x30" for rank in (0, 1)},
        ({f"sglang:num_queue_reqs{{{ENGINE}}}": "7x13 0 7x30"},),
        OF_ENGINE,
        "requests to chat on g1 have waited for 10 minutes without a pause (7 now)",
        "more load than it can serve: another replica, fewer clients, or max-running-requests",
    ),
    "SglangFirstTokenSlow": Case(
        first_token("0x30", "0+10x30"),
        (first_token("0+10x30", "0+10x30"), first_token("5x30", "9x30")),
        OF_ENGINE,
        "one request in twenty to chat on g1 waits 19.05s for its first token",
        f"long prompts, a queue, or kernels that are compiled: {STATUS}",
    ),
    "SglangRequestsRetracted": Case(
        {f"sglang:num_retracted_requests_total{{{ENGINE}}}": "0+1x30"},
        ({f"sglang:num_retracted_requests_total{{{ENGINE}}}": "9x30"},),
        OF_ENGINE,
        "the key/value cache of chat on g1 is too small: requests are begun again",
        "a higher mem-fraction-static, a smaller max-running-requests, or kv-cache-dtype",
    ),
    "SglangDrafterDoesNotHelp": Case(
        drafter("1x30", "0+100x30"),
        (
            drafter("2.5x30", "0+100x30"),
            drafter("1x30", "5x30"),  # nobody asks
            drafter("0x30", "0+100x30"),  # what an engine without a drafter says
        ),
        OF_ENGINE,
        "the drafter of chat on g1 is accepted 1.00 tokens at a time: it costs more than it gives",
        "is it the drafter of this model, with the right algorithm? Else drafter: null",
    ),
    "SglangGpuLost": Case(
        {**gpu("memory_total_bytes", 0, "9x30"), **gpu("memory_total_bytes", 1, "9x9 stale")},
        (
            {**gpu("memory_total_bytes", 0, "9x30"), **gpu("memory_total_bytes", 1, "9x30")},
            # The whole engine is gone: SglangEngineDown tells that.
            gpu("memory_total_bytes", 0, "9x9 stale"),
        ),
        OF_ENGINE,
        "chat on g1 has 1 GPUs, and had more within the hour",
        "on g1: nvidia-smi; dmesg | grep -i xid. After a change of `gpus` it ends by itself",
        severity="critical",
    ),
    "SglangGpuIdle": Case(
        {
            **gpu("utilization_ratio", 0, "0x30"),
            **gpu("utilization_ratio", 1, "0x30"),
            **running("2x30"),
        },
        (
            {**gpu("utilization_ratio", 0, "0x30"), **running("0x30")},
            {
                **gpu("utilization_ratio", 0, "0x30"),
                **gpu("utilization_ratio", 1, "0.5x30"),
                **running("2x30"),
            },
            running("2x30"),  # on a CPU
        ),
        OF_ENGINE,
        "chat on g1 has requests, and its GPUs do nothing",
        "on g1: sglangctl bundle chat; then restart the unit that sglangctl status chat names",
        severity="critical",
    ),
    "SglangGpuMemoryTaken": Case(
        {**held("foreign", "2147483648x30"), **held("ours", "9e10x30")},
        (held("ours", "9e10x30"), held("foreign", "5e8x30")),
        {"host": "g1", "gpu": "3"},
        "somebody else has 2GiB of GPU 3 of g1",
        "on g1: sglangctl holders",
    ),
    "SglangDiskFull": Case(
        disk("2x30"),
        (disk("9x30"), disk("2x30", "tmpfs")),
        {**NODE_LABELS, "mountpoint": "/var", "fstype": "ext4", "device": "/dev/sda1"},
        "/var of g1 has 2% of its room left",
        "on g1: df -h; du -xsh /var/log/sglang /var/cache/sglang /opt/sglang",
    ),
}


def alerts(rules: Path = RULES) -> dict[str, Any]:
    groups = yaml.safe_load(rules.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule}


def promtool_tests(name: str, case: Case) -> list[dict[str, Any]]:
    """As promtool has them."""
    expected = {
        "exp_labels": {**case.labels, "severity": case.severity},
        "exp_annotations": {"summary": case.summary, "next_step": case.next_step},
    }
    return [
        {
            "interval": "1m",
            "input_series": [{"series": one, "values": given} for one, given in series.items()],
            "alert_rule_test": [{"eval_time": case.at, "alertname": name, "exp_alerts": fired}],
        }
        for series, fired in ((case.fires, [expected]), *((one, []) for one in case.quiet))
    ]


def test_every_alert_has_a_case() -> None:
    assert set(alerts()) == set(CASES)


def test_promtool_finds_nothing_wrong() -> None:
    done = subprocess.run(
        [program("promtool"), "check", "rules", RULES], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def promtool(file: Path, tests: list[dict[str, Any]], rules: Path = RULES) -> tuple[bool, str]:
    document = {"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": tests}
    file.write_text(yaml.safe_dump(document, width=200))
    done = subprocess.run(
        [program("promtool"), "test", "rules", file], capture_output=True, text=True
    )
    return done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_each_alert_fires_when_it_should_and_not_else(tmp_path: Path) -> None:
    tests = [test for name, case in CASES.items() for test in promtool_tests(name, case)]
    assert len(tests) > 2 * len(CASES)
    well, said = promtool(tmp_path / "tests.yml", tests)
    assert well, said


@pytest.mark.slow
def test_an_alert_that_never_fires_would_be_seen(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yml"
    rules.write_text(RULES.read_text().replace("failed|deadline|", "deadline|"))
    tests = promtool_tests("SglangEngineDown", CASES["SglangEngineDown"])
    assert not promtool(tmp_path / "tests.yml", tests, rules)[0]
