"""Fallbacks: an engine's overrides, each looked at and rendered like an engine of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from roles.inventory.render import engine_json, render, venv_path
from sglangctl.state.config import Drafter
from sglangctl.state.paths import Paths
from sglangctl.switch.configure import engine_of
from tests.support.inventory_case import engine, engine_errors, load, only

BODY = """
    drafter: {path: /d}
    flags: {attention-backend: fa3}
    fallbacks:
      triton: {flags: {attention-backend: triton}}
      least: {drafter: null, nccl: {profile: safe}, environment: {MAX_JOBS: 2}}
    """


def test_each_is_a_release_of_its_own_in_the_same_environment() -> None:
    spec = engine(BODY)
    releases = {
        name: render(one, venv=venv_path(one))
        for name, one in [("", spec), *spec.fallbacks.items()]
    }
    assert list(releases) == ["", "triton", "least"]
    assert len({one.digest for one in releases.values()}) == 3
    assert len({one.venv for one in releases.values()}) == 1
    assert b'attention-backend: "triton"' in releases["triton"].files["engine.yaml"]
    assert b"speculative-draft-model-path" in releases["triton"].files["engine.yaml"]
    assert b"speculative" not in releases["least"].files["engine.yaml"]
    assert b"disable-custom-all-reduce" in releases["least"].files["engine.yaml"], "the profile's"
    assert b"MAX_JOBS=" in releases["least"].files["engine.env"]


def test_the_host_program_knows_what_each_stands_in_for(tmp_path: Path) -> None:
    spec = engine(BODY)
    known = engine_of("e", engine_json(spec).decode(), Paths(tmp_path))
    wanted = render(spec, venv=venv_path(spec)).digest
    assert [(one.name, one.instead_of) for one in known.fallbacks] == [
        ("triton", wanted),
        ("least", wanted),
    ]
    triton, least = known.fallbacks
    assert known.with_release(triton.release).drafter == Drafter(path="/d")
    assert known.with_release(least.release).drafter is None
    assert known.with_release(wanted) == known


def test_another_fallback_is_not_another_release() -> None:
    plain = engine("flags: {attention-backend: fa3}")
    spec = engine("flags: {attention-backend: fa3}\nfallbacks: {a: {nccl: {profile: safe}}}")
    assert render(plain, venv=venv_path(plain)).digest == render(spec, venv=venv_path(spec)).digest


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("a: {flags: {attention-backend: tritn}}", "a.flags.attention-backend: found tritn"),
        ("a: {flags: {atention-backend: triton}}", "a.flags.atention-backend: found"),
        ("a: {nccl: {profile: saf}}", 'a.nccl.profile: found saf; allowed: none, latency'),
        ("a: {nccl: {overrides: {NCCL_PROTO: LLL}}}", "a.nccl.overrides.NCCL_PROTO: found LLL"),
        ("a: {environment: {HOME: /x}}", "a.environment.HOME: found"),
        ("a: {drafter: {algorithm: EAGLE3}}", "a.drafter.path: found nothing"),
        ("a: {port: 3}", "a.port: found an unknown key"),
        ("a: {}", "a: found an empty mapping"),
        ("a: 3", "a: found 3; allowed: a mapping with flags"),
        ("A_B: {drafter: null}", "A_B: found the name A_B"),
        ("a: {drafter: null}", "a: found what the engine has anyway"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_where_it_was_written(body: str, said: str) -> None:
    (error,) = engine_errors(f"fallbacks: {{{body}}}")
    assert f"fallbacks.{said}" in error.replace('"', "")


def test_what_the_engine_and_the_override_do_together_is_the_overrides_mistake() -> None:
    errors = engine_errors(
        "gpus: [0, 1]\ntensor_parallel: 2\nflags: {attn-dp-size: 2}\n"
        "fallbacks: {a: {flags: {enable-dp-attention: false}}}"
    )
    assert all(error.startswith("fallbacks.a: found an engine with") for error in errors)


def test_a_mistake_of_the_engine_is_told_once() -> None:
    errors = engine_errors("flags: {wobble: 1}\nfallbacks: {a: {nccl: {profile: safe}}}")
    assert [error.split(": found")[0] for error in errors] == ["flags.wobble"]


def test_a_host_takes_a_base_s_fallback_away_and_keeps_the_others() -> None:
    entry = only(
        load(
            """
            engines: {e: {model: {path: /m}, fallbacks: {a: {nccl: {profile: safe}},
              b: {flags: {attention-backend: triton}}}}}
            hosts: {h: {engines: {e: {fallbacks: {a: null}}}}}
            """
        )
    )
    assert entry.spec is not None, entry.errors
    assert list(entry.spec.engines[0].fallbacks) == ["b"]


def test_a_fallback_s_secret_is_masked_too_and_missed_where_it_is_named(tmp_path: Path) -> None:
    body = "fallbacks: {a: {environment: {HF_TOKEN: {env: TOKEN}}}}"
    (error,) = engine_errors(body, folder=tmp_path)
    assert error.startswith("fallbacks.a.environment.HF_TOKEN: found")
    spec = engine(body, folder=tmp_path, TOKEN="hush-hush-hush")
    assert [one.reveal() for one in spec.secrets] == ["hush-hush-hush"]
    assert "hush" not in json.dumps(json.loads(engine_json(spec)))
