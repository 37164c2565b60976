"""`nccl.profile: auto`: what is chosen by what was kept, and what the engine then is."""

from __future__ import annotations

from typing import Any

import pytest

from roles.inventory import auto_profile, render
from roles.inventory.auto_profile import candidates, choose, with_profile
from roles.inventory.model import EngineSpec
from roles.inventory.nccl import PROFILES
from sglangctl.collective.arms import effective
from sglangctl.state.config import Preflight
from tests.support.inventory_case import engine

AUTO = "nccl: {profile: auto}\ntensor_parallel: 2"


def arm(
    profile: str, outcome: str = "right", us: float = 100.0, **variables: str
) -> dict[str, Any]:
    environment = effective({**PROFILES[profile].environment, **variables}, Preflight())
    times = [[4, us / 1e6], [1 << 20, us / 1e5]] if outcome == "right" else []
    return {"name": "x", "environment": environment, "outcome": outcome, "times": times}


def known(*arms: dict[str, Any], **more: Any) -> dict[str, Any]:
    entry = {"time": "2026-11-30", "ranks": 2, "driver": "580.1", "nccl": "2.28.9", "arms": arms}
    return {"entry": {**entry, "arms": list(arms), **more}, "differs": []}


WITHOUT = arm("none", NCCL_P2P_DISABLE="1")


@pytest.mark.parametrize(
    ("arms", "profile", "words"),
    [
        ([arm("none")], "none", "right (2026-11-30, driver 580.1, nccl 2.28.9)"),
        ([arm("none"), WITHOUT], "none", "right, and no other profile is faster"),
        ([arm("none"), arm("latency", us=70)], "latency", "right, and 30% less time than"),
        ([arm("none"), arm("latency", us=97)], "none", "no other profile is faster"),
        (
            [arm("none"), arm("latency", us=80), arm("single-switch", us=60)],
            "single-switch",
            "40% less time",
        ),
        ([arm("none"), arm("latency", "not-possible", us=1)], "none", "right"),
        ([arm("none"), {**arm("latency", us=1), "outcome": "not-possible"}], "none", "right"),
        # What is fast and wrong is not taken, nor what shares its peer-to-peer copies.
        (
            [arm("none"), arm("latency", "wrong"), WITHOUT],
            "safe",
            "were wrong, without it every sum",
        ),
        ([arm("none", "hung"), WITHOUT], "safe", "with peer-to-peer all-reduces hung, without it"),
        ([arm("none", "hung"), arm("throughput", us=1), WITHOUT], "safe", "hung, without it"),
        ([arm("none", "hung"), arm("safe", "hung")], "none", "hung, and no profile proved right"),
        (
            [arm("latency", "hung"), arm("latency", NCCL_P2P_DISABLE="1")],
            "safe",
            "hung, without it",
        ),
        # Measured by hand while another profile was live.
        ([arm("latency")], "latency", "right; NCCL's own choices are not proven"),
        # With peer-to-peer NCCL refused to work.
        ([arm("none", "not-possible"), WITHOUT], "safe", "NCCL's own choices are not proven"),
        (
            [arm("none", "not-possible"), arm("throughput", us=1), arm("safe")],
            "safe",
            "NCCL's own choices are not proven",
        ),
        ([arm("none", NCCL_PROTO="LL128")], "none", "no profile was measured with these overrides"),
        ([], "none", "no profile was measured"),
    ],
)
def test_what_is_chosen(arms: list[dict[str, Any]], profile: str, words: str) -> None:
    found = choose(engine(AUTO), known(*arms))
    assert found.profile == profile and words in found.why


def test_safe_is_no_choice_for_its_speed() -> None:
    found = choose(engine(AUTO), known(arm("none"), arm("safe", us=1)))
    assert found.profile == "none"


def test_without_a_result_it_is_the_default_and_says_so() -> None:
    for nothing in (None, {}, {"entry": None}, {"entry": []}):
        found = choose(engine(AUTO), nothing)
        assert found.profile == "none" and "not proven on this host" in found.why
        assert "deploys/collective.py" in found.why


def test_a_result_for_fewer_ranks_proves_nothing() -> None:
    four = engine("nccl: {profile: auto}\ntensor_parallel: 4")
    found = choose(four, known(arm("none"), arm("latency", us=1)))
    assert (found.profile, found.why) == ("none", "proven for 2 ranks only, not for 4")


def test_a_host_that_changed_keeps_the_choice_and_is_told_of() -> None:
    since = {**known(arm("none", "hung"), WITHOUT), "differs": ["driver 580.1, now 590"]}
    found = choose(engine(AUTO), since)
    assert found.profile == "safe"
    assert "since then: driver 580.1, now 590: prove it again" in found.why


def test_nothing_of_a_host_s_answer_is_a_crash() -> None:
    odd: tuple[Any, ...] = (None, 1, "x", [], {}, [[]], [None], {"a": 1}, float("nan"), True)
    spec = engine(AUTO)
    for one in odd:
        choose(spec, one if isinstance(one, dict) else {"entry": one})
        for key in ("time", "ranks", "driver", "arms"):
            choose(spec, known(**{key: one}))
        for key in ("name", "environment", "outcome", "times"):
            assert choose(spec, known({**arm("none"), key: one})).profile in ("none", "safe")


def same(one: EngineSpec, other: EngineSpec) -> bool:
    """But for what says that it was chosen."""
    releases = [render.render(spec, venv="/v") for spec in (one, other)]
    files = [dict(release.files) for release in releases]
    for each in files:
        each.pop("manifest.json")
        each["nccl.env"] = each["nccl.env"].replace(b", chosen by auto", b"")
    return files[0] == files[1] and one.preflight == other.preflight


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(
    "more",
    [
        "",
        "flags: {disable-custom-all-reduce: null}",
        "flags: {disable-custom-all-reduce: false, enable-p2p-check: true}",
    ],
)
def test_the_chosen_one_is_as_if_it_were_named(profile: str, more: str) -> None:
    body = f"tensor_parallel: 2\n{more}\nnccl: {{overrides: {{DEBUG: INFO}}, profile: "
    auto, named = engine(f"{body}auto}}"), engine(f"{body}{profile}}}")
    chosen = with_profile(auto, profile)
    assert same(chosen, named)
    assert same(with_profile(with_profile(chosen, "safe"), profile), named)
    text = render.render(chosen, venv="/v").files["nccl.env"].decode().splitlines()[0]
    assert text.endswith(f"profile {profile}, chosen by auto. Made by sglang-provision.")


def test_only_an_engine_or_fallback_with_auto_is_changed() -> None:
    named = engine("nccl: {profile: latency}")
    assert with_profile(named, "safe") is named
    mixed = engine(f"{AUTO}\nfallbacks: {{a: {{nccl: {{profile: latency}}}}, b: {{drafter: null,"
                   " flags: {dtype: half}}}")  # fmt: skip
    chosen = with_profile(mixed, "safe")
    profiles = [one.nccl.profile for one in chosen.fallbacks.values()]
    assert profiles == ["latency", "safe"] and chosen.nccl.profile == "safe"


def test_what_is_compared_has_the_engine_s_overrides() -> None:
    found = candidates(engine("nccl: {profile: auto, overrides: {PROTO: null, DEBUG: INFO}}").nccl)
    assert list(found) == list(PROFILES)
    assert found["none"] == {"NCCL_DEBUG": "INFO"}
    assert found["latency"] == {"NCCL_P2P_LEVEL": "SYS", "NCCL_DEBUG": "INFO"}


@pytest.mark.parametrize(
    ("flags", "settings"),
    [
        ("enable-symm-mem: true", {"symmetric_memory": True}),
        ("enable-nccl-nvls: true", {"nvls": True}),
        ("moe-a2a-backend: deepep_v2", {"cumem": True}),
        ("enable-kv-cache-sharding: true", {"cumem": True}),
        ("enable-symm-mem: false", {}),
    ],
)
def test_flags_that_change_nccl_s_variables(flags: str, settings: dict[str, bool]) -> None:
    """What was measured without such a flag proves nothing of an engine with it."""
    spec = engine(f"{AUTO}\nflags: {{{flags}}}")
    measured = arm("latency", us=1)
    assert choose(spec, known(arm("none"), measured)).profile == ("none" if settings else "latency")
    own = {
        **{"name": "x", "outcome": "right", "times": measured["times"]},
        "environment": effective(PROFILES["latency"].environment, Preflight(**settings)),
    }
    assert choose(spec, known(own)).profile == "latency"


def test_the_choice_needs_no_more_than_noise_to_stay() -> None:
    assert 0 < auto_profile.FASTER < 0.5
    runs = [known(arm("none", us=100 + at), arm("latency", us=100 - at)) for at in (0, 1, 2)]
    assert {choose(engine(AUTO), one).profile for one in runs} == {"none"}
