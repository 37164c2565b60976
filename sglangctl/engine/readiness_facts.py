"""Gather the facts that `ready` rests on from a running engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from sglangctl.diagnosis.readiness import Facts
from sglangctl.engine import accept_length, kinds, memory_taken, port_owner
from sglangctl.engine.accept_length import Acceptance
from sglangctl.engine.generate import Generation, generate, with_text
from sglangctl.engine.http import Answer, Endpoint, ask
from sglangctl.engine.kinds import Kind
from sglangctl.engine.processes import Collector, ranks_alive, wrong
from sglangctl.engine.walks import Say, Walks, walk
from sglangctl.masking.text import mask_argv
from sglangctl.proc import procfs
from sglangctl.state.config import Drafter, EngineConfig
from sglangctl.util.values import mappings

INFO_TIMEOUT_S = 10.0
"""/server_info waits for the scheduler without a limit of its own."""


@dataclass(frozen=True)
class Proof:
    """The facts, and the generation (None: not asked, because /health was not 200)."""

    facts: Facts
    generation: Generation | None
    acceptance: Acceptance | None
    models: Answer | None = None
    """The answer of /v1/models."""
    asked: str = ""
    """Readiness.asked of the configuration that it was asked with."""
    min_accept_length: float | None = None
    walks: Walks | None = None
    """None: no path was walked, because it was not asked for or the generation failed."""
    model_kind: str = kinds.CHATTING.name
    load: dict[str, Any] | None = None
    """What the load of the acceptance showed (accepted.Judged.event)."""
    memory: dict[str, Any] | None = None
    """What the engine took of each GPU (memory_taken.read)."""


def gather(
    config: EngineConfig,
    where: Endpoint,
    main_pid: int,
    pids: Iterable[int],
    say: Callable[[str], None] = lambda text: None,
    walking: Say | None = None,
) -> Proof:
    """Look at processes and port, then ask; `say` gets a word before each step that may take long.
    `walking`: told of each path that is walked; None walks none (an engine that others use).

    /server_info and the generation are asked only of an engine whose /health is 200 and whose
    processes all run: else the first hangs, and the second would only tell the same once more, at
    the end of its limit (/health is 200 for some seconds more beside a stopped process).
    """
    main = procfs.stat(main_pid)
    pids, collector = list(pids), Collector()
    processes = collector.sample(pids)
    owner = port_owner.find(
        config.port, config.listen, [process.pid for process in processes], main_pid
    )
    port_ours, port_text = _port(config, owner, main)
    say("asking /health")
    health = ask(where, "/health", config.limits.http_timeout_s)
    models = ask(where, "/v1/models", config.limits.http_timeout_s)
    generation = acceptance = walks = info = None
    kind = kinds.CHATTING
    speculative: str | None = None
    faults: tuple[str, ...] = ()
    faulty = tuple(wrong(processes))
    if faulty:
        # A debugger stops a process for a moment: what a second look finds too counts.
        again = wrong(collector.sample(pids))
        faulty = tuple(fault for fault in faulty if fault in again)
    # Where nobody can see whose port it is, the key is not sent, and a refusal would prove nothing.
    answers = port_ours if where.api_key else port_ours is not False
    if health.status == 200 and answers and not faulty:
        say("asking for a generation")
        if walking is not None:
            walking("a prompt", 0, 0)
        kind, generation = _proof(config, where)
        if config.drafter is not None or generation.text_ok:
            info = ask(where, "/server_info", INFO_TIMEOUT_S)
        if config.drafter is not None and info is not None:
            speculative, faults = speculation(config.drafter, info, where.mask)
            if generation.text_ok and kind is kinds.CHATTING:
                say("measuring the accept length")
                acceptance = accept_length.measure(
                    where,
                    config.served_name,
                    config.readiness,
                    config.limits.generate_timeout_s,
                    generation,
                )
        if walking is not None and generation.text_ok:
            walks = walk(where, config, kind, info, models, walking)
    facts = Facts(
        main_alive=main is not None and main.state not in procfs.DEAD,
        port_ours=port_ours,
        port_owner=port_text,
        health=health.status,
        health_error=health.error,
        served_models=served_models(models, where.mask),
        ranks_alive=ranks_alive(processes),
        ranks_wrong=faulty,
        generation_ok=generation.text_ok if generation else None,
        generation_fault=_generation_text(generation),
        speculative=speculative,
        speculative_faults=faults,
        accept_length=acceptance.length if acceptance else None,
        accept_source=acceptance.source if acceptance else "no chat to measure it on",
    )
    readiness = config.readiness
    return Proof(
        facts,
        generation,
        acceptance,
        models,
        readiness.asked,
        readiness.min_accept_length,
        walks,
        kind.name,
        memory=memory_taken.read(info),
    )


def _proof(config: EngineConfig, where: Endpoint) -> tuple[Kind, Generation]:
    """The answer that `ready` rests on, asked as this kind of model is asked."""
    limit_s, readiness = config.limits.generate_timeout_s, config.readiness
    kind = kinds.of(where, config.limits.http_timeout_s)
    if kind is kinds.CHATTING:
        made = generate(where, config.served_name, readiness, limit_s)
        if not kinds.without_template(made):
            return kind, made
        kind = kinds.COMPLETION
    request = kind.request(config.served_name, readiness.prompt, readiness.max_tokens)
    made = kind.send(where, request, limit_s)
    return kind, made if kind.vectors else with_text(made, readiness)


def served_models(answer: Answer, mask: Callable[[str], str] = str) -> tuple[str, ...] | None:
    """The ids in an answer of /v1/models, masked; None when it is no such answer."""
    items = answer.object().get("data")
    if not isinstance(items, list):
        return None
    ids = [item.get("id") for item in mappings(items)]
    return tuple(mask(identifier) for identifier in ids if isinstance(identifier, str))


def speculation(
    declared: Drafter, info: Answer, mask: Callable[[str], str] = str
) -> tuple[str | None, tuple[str, ...]]:
    """The algorithm that runs ("" none, None unknown) and what differs from what is declared."""
    document = info.object()
    if "speculative_algorithm" not in document:
        return None, ()
    running = document["speculative_algorithm"]
    if not isinstance(running, str) or not running:
        return "", ()
    faults = []
    running = mask(running)[:100]
    if running.upper() not in _names_of(declared.algorithm):
        faults.append(f"runs {running}, declared is {declared.algorithm}")
    pairs: tuple[tuple[str, Any, str], ...] = (
        ("drafter", declared.path, "speculative_draft_model_path"),
        ("steps", declared.steps, "speculative_num_steps"),
        ("topk", declared.topk, "speculative_eagle_topk"),
        ("draft tokens", declared.draft_tokens, "speculative_num_draft_tokens"),
    )
    for label, wanted, key in pairs:
        found = document.get(key)
        if wanted is not None and found is not None and found != wanted:
            faults.append(f"{label} {mask(str(found))[:200]}, declared is {wanted}")
    return running, tuple(faults)


def _names_of(algorithm: str) -> set[str]:
    """How /server_info may call a declared algorithm (NEXTN is an alias of EAGLE)."""
    name = algorithm.upper()
    return {"NEXTN", "EAGLE"} if name in ("NEXTN", "EAGLE") else {name}


def _port(
    config: EngineConfig, owner: port_owner.Owner | None, main: procfs.Stat | None
) -> tuple[bool | None, str]:
    if owner is None:
        return False, f"no process listens on {config.port}"
    who = _named(owner.pid)
    if owner.ours is None:
        return None, f"the owner of {config.port} is not visible to this user: run it with sudo"
    if not owner.ours:
        return False, f"{config.port} belongs to another process: {who}"
    found = procfs.stat(owner.pid) if owner.pid is not None else None
    if found is None or main is None:
        return None, f"{config.port}: its owner ended during the check"
    if found.start < main.start:
        return False, f"{config.port} belongs to {who}, which started before this start"
    return True, f"{config.port} belongs to {who}"


def _named(pid: int | None) -> str:
    if pid is None:
        return "a process that this user cannot see"
    return f"pid {pid} ({' '.join(mask_argv(procfs.cmdline(pid)))[:60] or 'gone'})"


def _generation_text(generation: Generation | None) -> str | None:
    if generation is None:
        return "not asked"
    if not generation.text_ok:
        return generation.fault
    if generation.tokens is None:
        return f"{generation.text} after {generation.seconds:.2f} s"
    parts = [f"{generation.tokens} tokens"]
    if generation.tokens_per_s is not None:
        parts.append(f"{generation.tokens_per_s:.1f} tokens/s")
    if generation.ttft_s is not None:
        parts.append(f"first token after {generation.ttft_s:.2f} s")
    return ", ".join(parts)
