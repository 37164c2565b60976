"""What each line of the log means for the start: a table from its first word to a handler."""

from __future__ import annotations

from collections.abc import Callable

from sglangctl.startup import loglines, phases
from sglangctl.startup.loglines import Line
from sglangctl.startup.state import State
from sglangctl.util.values import printable

Handler = Callable[[State, float, str, str], bool]
"""(startup, t, text, rank) -> True when nothing else is to be looked for in the line."""


def read(startup: State, t: float, line: Line) -> None:
    """Take one line."""
    text = line.text
    if line.rank:
        startup.phases.spoke(line.rank)
    handler = _HANDLERS.get(text[: text.find(" ")] if " " in text else text)
    if handler is not None and handler(startup, t, text, line.rank or ""):
        return
    if line.rank is None:
        shown = loglines.bar(text)
        if shown is not None:
            bar(startup, t, shown)
            return
        if text.startswith("server_args="):
            startup.launched.server_args(text)
    elif text.startswith("server_args="):
        startup.server_args(text)
        startup.moved(t, "the log")
        return
    elif text.startswith("max_total_num_tokens="):
        startup.advanced(startup.phases.initialised(t))
    if startup.service.good_t is None:
        startup.moved(t, "the log")
    startup.failures.doubtful = startup.ranks.seen and startup.service.bound_t is not None
    startup.failures.line(t, line, startup.context)


def bar(startup: State, t: float, shown: loglines.Bar) -> None:
    """Take one state of a progress bar."""
    if phases.shard_bar(shown):
        startup.phases.at_least(t, "loading")
        if startup.work.feed(t, startup.phases.model, "shards", shown):
            startup.moved(t, "shards")
            startup.failures.advance()
    elif phases.graph_bar(shown):
        startup.phases.at_least(t, "capturing")
        if startup.work.feed(t, startup.phases.capture, "graphs", shown):
            startup.moved(t, "graphs")
            startup.failures.advance()
    elif shown.done:
        startup.moved(t, "the log")


def _init(startup: State, t: float, text: str, rank: str) -> bool:
    if text.startswith(("Init torch distributed begin", "Init parallel begin")):
        startup.advanced(startup.phases.connecting(t, rank))
    return False


def _gate(startup: State, t: float, text: str, rank: str) -> bool:
    if text.startswith("Gated launch waiting"):
        startup.advanced(startup.phases.at_least(t, "gated"))
    elif text.startswith("Gated launch activated"):
        startup.advanced(startup.phases.at_least(t, "loading"))
    return False


def _load(startup: State, t: float, text: str, rank: str) -> bool:
    if text.startswith("Load weight begin"):
        before = startup.phases.model
        startup.advanced(startup.phases.load_begin(t, rank))
        if startup.phases.model != before or startup.work.current is None:
            startup.work.loading(t, startup.phases.model)
    elif text.startswith("Load weight end"):
        startup.advanced(startup.phases.load_end(t, rank))
    return False


def _pool(startup: State, t: float, text: str, rank: str) -> bool:
    if text.startswith(("KV Cache is allocated", "Memory pool end")):
        startup.advanced(startup.phases.allocating(t))
    return False


def _capture(startup: State, t: float, text: str, rank: str) -> bool:
    if " begin" in text[:80]:
        what = text[len("Capture ") : text.find(" begin")]
        for noise in (" CUDA graph", " cuda graph", " NPU graph", " CPU graph"):
            what = what.replace(noise, "")
        what = printable(what.strip(), 40) or "decode"
        startup.advanced(startup.phases.capture_begin(t, rank, what))
    elif " end" in text[:80]:
        startup.phases.capture_end(rank)
    return False


def _uvicorn(startup: State, t: float, text: str, rank: str) -> bool:
    message = text[text.find(" ") :].strip()
    at = message.find('- "')
    if at >= 0:
        # The access log: mostly our own probes, so it is no motion.
        if message.startswith("POST ", at + 3) and message.find(" 200", at) > 0:
            startup.service.loaded = False
        return True
    if message.startswith("Uvicorn running on "):
        if startup.service.port_matches(message, startup.launched.port):
            startup.service.bound(t)
            startup.advanced(startup.phases.at_least(t, "warming"))
    elif message.startswith("Started server process"):
        startup.advanced(startup.phases.at_least(t, "binding"))
    elif message.startswith("Shutting down"):
        startup.service.stops(t)
    return False


def _rolling(startup: State, t: float, text: str, rank: str) -> bool:
    if text.startswith("The server is fired up and ready to roll!"):
        startup.rolled(t)
    return False


def _batch(startup: State, t: float, text: str, rank: str) -> bool:
    if not text.startswith(("Prefill batch", "Decode batch")):
        return False
    startup.service.batch(t, text)
    return True


def _sigterm(startup: State, t: float, text: str, rank: str) -> bool:
    if text.startswith(("SIGTERM received", "Signal SIGTERM received", "Gracefully exiting")):
        startup.service.stops(t)
    return False


def _health(startup: State, t: float, text: str, rank: str) -> bool:
    if text.startswith("Health check failed. Server couldn't get a response"):
        if startup.served:
            startup.service.engine_failed(t)
        return True
    return text.startswith("Health check request received during")


def _deprecated(startup: State, t: float, text: str, rank: str) -> bool:
    return " is deprecated and will be removed" in text


def _engine(startup: State, t: float, text: str, rank: str) -> bool:
    if text.startswith(("Engine startup timings", "Tree cache initialized")):
        startup.advanced(startup.phases.initialised(t))
    return False


_HANDLERS: dict[str, Handler] = {
    "Gated": _gate,
    "Init": _init,
    "Load": _load,
    "KV": _pool,
    "Memory": _pool,
    "Capture": _capture,
    "INFO:": _uvicorn,
    "The": _rolling,
    "Prefill": _batch,
    "Decode": _batch,
    "SIGTERM": _sigterm,
    "Signal": _sigterm,
    "Gracefully": _sigterm,
    "Health": _health,
    "Endpoint": _deprecated,
    "Engine": _engine,
    "Tree": _engine,
}
