"""The titles that SGLang gives its processes, as far as comm keeps them (15 characters)."""

from __future__ import annotations

PREFIX = "sglang::"
SCHEDULER = "sglang::sched"
"""One a rank: `sglang::scheduler_TP0`."""
BARE_SCHEDULER = ("sglang::scheduler", "sglang::schedul")
"""Titles that several ranks may have at once: without a suffix, or cut by comm."""
DETOKENIZER = "sglang::detok"
CONTROLLER = "sglang::data_par"
"""Of data parallel attention: parent of the schedulers of its replicas, and none itself."""
ESSENTIAL = (SCHEDULER, DETOKENIZER, CONTROLLER)
"""Without one of these the engine cannot answer."""
