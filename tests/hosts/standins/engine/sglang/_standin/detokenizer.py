"""The detokenizer process: words to text."""

from __future__ import annotations

import os
import time

from sglang._standin import options
from sglang._standin.shared.devices import Devices
from sglang._standin.shared.title import die_with_parent, retitle
from sglang._standin.wiring import Detokenizer


def run(wiring: Detokenizer) -> None:
    """Entry of the process."""
    time.sleep(options.phase_s("importing"))
    retitle("sglang::detokenizer")
    die_with_parent()
    if os.getppid() != wiring.parent and options.text("ORPHANS") == "die":
        os._exit(1)
    # The real one holds the devices open too, without memory on them.
    held = Devices(wiring.gpus, options.devices())
    while held:
        try:
            message = wiring.tokens.recv()
            message["text"] = "".join(message.pop("words"))
            wiring.texts.send(message)
        except (EOFError, OSError):
            time.sleep(3600)
