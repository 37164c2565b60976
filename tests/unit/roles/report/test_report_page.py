"""report.html: what its picture says, and that text of a host is never markup."""

from __future__ import annotations

import random
from html.parser import HTMLParser
from typing import Any

import pytest

from roles.report import history
from roles.report.page import page
from roles.report.timeline import Timeline, timeline
from tests.support.fuzz import ODD
from tests.support.report_document import document


def seen(host: int, **choice: Any) -> Timeline:
    found = document()["report"][host]
    chosen = {**found["choices"][0], **choice}
    return timeline(found["switches"]["chat"], found["engines"][0], chosen)


def test_service_is_missed_from_the_first_stop_to_the_new_engines_first_answer() -> None:
    found = seen(0)
    assert [bar.name for bar in found.steps] == [
        *("freeing", "moving", "starting", "following", "committing")
    ]
    assert found.phases[0].begin == found.steps[2].begin == 6.6
    assert found.dark is not None
    assert (found.dark.begin, found.dark.end) == (0.4, pytest.approx(6.6 + 86.4))
    assert found.memory[0] == (pytest.approx(7.6), 22000.0)
    assert found.end == 119.0


def test_service_is_missed_until_a_switch_that_went_back_ended() -> None:
    found = seen(1)
    assert [bar.name for bar in found.steps][-1] == "going back"
    assert found.dark is not None
    assert (found.dark.begin, found.dark.end) == (0.2, 40.0)
    host = document()["report"][1]
    engine = {**host["engines"][0], "served_after_s": 3.0}  # of the start that serves again
    again = timeline(host["switches"]["chat"], engine, host["choices"][0])
    assert again.dark is not None and again.dark.end == 40.0


def test_an_event_that_is_before_the_last_one_is_left_out() -> None:
    events = [{"t": 5.0, "step": "freeing"}, {"t": 1.0, "step": "x"}, {"t": 7.0, "step": "moving"}]
    bars = [(bar.name, bar.begin, bar.end) for bar in timeline(events, {}, {}).steps]
    assert bars == [("freeing", 5.0, 7.0), ("moving", 7.0, 7.0)]


def test_beside_what_serves_a_start_is_longer_than_what_is_missed() -> None:
    steps = [
        (0.5, "gating"),
        (14.0, "freeing"),
        (20.0, "moving"),
        (20.5, "starting"),
        (26.0, "end"),
    ]
    events = [{"t": t, "step": name} for t, name in steps]
    result = {"served_after_s": 24.0, "phases": {"importing": 12.0, "gated": 8.0, "loading": 4.0}}
    found = timeline(events, result, {"action": "RESTART"})
    assert (found.phases[0].begin, found.phases[-1].end) == (0.5, 24.5)
    assert found.dark is not None
    assert (found.dark.begin, found.dark.end) == (14.0, 24.5)
    assert timeline(events[:1], {}, {"action": "RESTART"}).dark is None, "nothing was stopped"


def test_nobody_misses_what_never_served() -> None:
    assert seen(0, action="START").dark is None


class Elements(HTMLParser):
    """The elements of a page, and their attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.attributes: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)
        self.attributes |= {name for name, _ in attrs}


def test_text_of_a_host_is_never_markup() -> None:
    html = page(document())
    elements = Elements(html)
    assert not {"script", "img", "link", "iframe"} & set(elements.found)
    assert not {one for one in elements.attributes if one.startswith("on")} | (
        {"src", "href"} & elements.attributes
    )
    assert "&lt;script&gt;" in html and "&lt;img src=x" in html and "\x1b" not in html
    assert "default-src 'none'" in html


def test_the_page_says_what_the_report_says() -> None:
    html = page(document())
    for text in (
        "1 of 2 hosts are as they should be",
        "about 1 min 33 s",
        "compare `model.path` with the host",
        "402.5",
        "instead of 101.0",
        "2026-11-29T10:00:00Z",
        "+max-total-tokens: 4096",
        "before: vllm-kimi.service",
        "63.6",
        "6 of 6 answers begin as before",
        "520.5",
        "path /a -&gt; /b",
        "not reached",
    ):
        assert text in html, text


def test_a_plan_does_not_say_that_a_host_is_as_it_should_be() -> None:
    found = document()
    for host in found["report"]:
        for one in host["operations"]:
            one["success"] = one["changed"] = None
    html = page(found)
    assert "Nothing was done; 1 of 2 hosts failed" in html
    assert "as they should be" not in html and "not reached" not in html
    (planned, _) = found["report"]
    assert '<p class="word good">Nothing was done</p>' in page({**found, "report": [planned]})
    planned["choices"][0]["fails"] = ["weights are missing"]
    assert '<p class="word bad">Nothing was done</p>' in page({**found, "report": [planned]})


def test_whatever_a_host_has_answered_there_is_a_page() -> None:
    chance = random.Random(7)

    def spoiled(value: Any) -> Any:
        if chance.random() < 0.04:
            return chance.choice(ODD)
        if isinstance(value, dict):
            return {key: spoiled(one) for key, one in value.items() if chance.random() > 0.03}
        return [spoiled(one) for one in value] if isinstance(value, list) else value

    spoilt = ("generate", "checks", "phases", "history")
    for _ in range(300):
        found = document()
        for host in found["report"]:
            host["engines"] = [
                {**one, **{key: spoiled(one[key]) for key in spoilt if key in one}}
                for one in host["engines"]
            ]
            host["switches"] = {key: spoiled(one) for key, one in host["switches"].items()}
        assert page(found).encode().endswith(b"</html>\n")


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), 10**400])
def test_numbers_that_are_none(odd: Any) -> None:
    """JSON has them, as Python reads it: one host's cost all hosts their page."""
    found = document()
    found["report"][0]["engines"][0]["generate"] = {
        "tokens_per_s": odd,
        "warm": {"paths": [{"name": "x", "first_s": odd}], "seconds": odd},
    }
    assert "0 paths walked" in page(found)


def over_time(**load: Any) -> list[history.Measurement]:
    (host, _) = document()["report"]
    (result,) = host["engines"]
    now = {**result["generate"]["acceptance"], **load}
    return history.measurements(result["history"], now, "2026-11-30T11:30:00Z")


def test_speeds_over_time_are_a_line_for_each_concurrency() -> None:
    found = over_time()
    assert [one.kept for one in found] == [True, True, False]
    drawn = history.chart(found)
    assert drawn is not None
    single, together = drawn["lanes"]
    assert (single["name"], together["name"]) == ("1 at a time", "8 at once")
    assert "101.0" in single["most"] and "520.5" in together["most"]
    heights = [one["y"] for one in single["points"]]
    assert heights[1] < heights[0] < heights[2] < single["base"]  # 101, 96, 82.5 tokens/s
    assert "82.5 tokens/s" in single["points"][2]["label"]
    assert single["points"][0]["x"] < single["points"][1]["x"] < single["points"][2]["x"] < 960


def test_what_was_kept_is_shown_once() -> None:
    """The host's history has it already."""
    assert len(over_time(kept=True)) == 2


def test_one_measurement_is_a_table_without_a_chart() -> None:
    found = document()
    result = found["report"][0]["engines"][0]
    result["history"], result["generate"]["acceptance"] = result["history"][:1], None
    html = page(found)
    assert "Speed over time" in html and 'polyline class="speed"' not in html
    result["history"] = []
    assert "Speed over time" not in page(found)


def test_no_more_than_the_newest_are_shown() -> None:
    entry = {"time": "t", "speeds": [{"concurrency": 1, "tokens_per_s": 1.0}]}
    assert len(history.measurements([entry] * 900, {}, "")) == history.MOST
