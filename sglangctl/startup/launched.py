"""The configuration of a start: from the launch event, its argv, and the engine's own server_args line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sglangctl.util import lazy_re
from sglangctl.util.values import digits, in_unix, mapping, number, text, whole

_NAMES = {
    "model_path": "model",
    "tokenizer_path": "tokenizer",
    "served_model_name": "served_name",
    "port": "port",
    "tp_size": "tensor_parallel",
    "pp_size": "pipeline_parallel",
    "speculative_draft_model_path": "drafter_path",
    "speculative_algorithm": "algorithm",
}
"""Name in server_args -> field of Launched. Flags have the same names, and these:"""
_FLAGS = {
    **_NAMES,
    "model": "model",
    "tp": "tensor_parallel",
    "tensor_parallel_size": "tensor_parallel",
    "pipeline_parallel_size": "pipeline_parallel",
    "speculative_draft_model": "drafter_path",
}
_ARGUMENT = lazy_re.compile(
    rf"['\"]?\b({'|'.join(_NAMES)})['\"]?[=:] ?(?:'([^']*)'|\"([^\"]*)\"|(\w+))"
)


@dataclass
class Launched:
    """Absent values are None."""

    other_engine: bool = False
    """Not an SGLang start: nothing is judged."""
    at: float | None = None
    """Unix seconds of the launch."""
    port: int | None = None
    model: str | None = None
    tokenizer: str | None = None
    served_name: str | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    drafter_path: str | None = None
    algorithm: str | None = None
    min_accept_length: float = 1.2
    weights_bytes: dict[str, int] = field(default_factory=dict)
    history: dict[str, float] = field(default_factory=dict)

    @property
    def drafter(self) -> bool:
        """Whether a draft model is loaded (NGRAM and its like have none)."""
        return self.drafter_path is not None

    @property
    def speculative(self) -> bool:
        """Whether speculative decoding is declared."""
        return self.algorithm is not None or self.drafter

    @property
    def world(self) -> int | None:
        """Ranks of one replica on this host, where known."""
        if self.tensor_parallel is None:
            return None
        return self.tensor_parallel * (self.pipeline_parallel or 1)

    def event(self, event: dict[str, Any]) -> None:
        """Take the launch event; what it names itself goes before argv."""
        self.at = in_unix(event.get("time"))
        argv = event.get("argv")
        words = [word for word in argv if isinstance(word, str)] if isinstance(argv, list) else []
        engine = text(event.get("engine"))
        self.other_engine = (
            _is_other_engine(words) if engine is None else engine.lower() != "sglang"
        )
        self._argv(words)
        drafter = mapping(event.get("drafter"))
        for name, value in (
            ("port", event.get("port")),
            ("model", event.get("model")),
            ("served_name", event.get("served_name")),
            ("tensor_parallel", event.get("tensor_parallel")),
            ("drafter_path", drafter.get("path")),
            ("algorithm", drafter.get("algorithm")),
        ):
            self._set(name, value)
        floor = number(event.get("min_accept_length"))
        if floor is not None:
            self.min_accept_length = floor
        for model, size in mapping(event.get("weights_bytes")).items():
            count = whole(size)
            if count is not None and count > 0:
                self.weights_bytes[str(model)] = count
        for phase, seconds in mapping(event.get("history")).items():
            spent = number(seconds)
            if spent is not None and spent >= 0:
                self.history[str(phase)] = spent

    def server_args(self, line: str) -> None:
        """Take the engine's server_args line: fills in what is not known yet."""
        for match in _ARGUMENT.finditer(line):
            name = _NAMES[match[1]]
            if getattr(self, name) is None:
                value = match[2] or match[3] or match[4]
                if value not in ("None", None, ""):
                    self._set(name, value)

    def _argv(self, words: list[str]) -> None:
        waiting: str | None = None
        for word in words:
            if waiting is not None:
                self._set(waiting, word)
                waiting = None
            elif word.startswith("--"):
                flag, equals, value = word.partition("=")
                name = _FLAGS.get(flag[2:].replace("-", "_"))
                if name is not None and equals:
                    self._set(name, value)
                else:
                    waiting = name

    def _set(self, name: str, value: Any) -> None:
        if name in ("port", "tensor_parallel", "pipeline_parallel"):
            count = digits(value) if isinstance(value, str) else whole(value)
            if count is not None and count > 0:
                setattr(self, name, count)
        elif isinstance(value, str) and value:
            setattr(self, name, value)


def _is_other_engine(words: list[str]) -> bool:
    """Whether argv is another engine's (only vLLM's is known)."""
    for word in words[:4]:
        if word.startswith("-") and word != "-m":
            continue
        name = word.rpartition("/")[2]
        if name == "sglang" or name.startswith("sglang."):
            return False
        if name == "vllm" or name.startswith("vllm."):
            return True
    return False
