"""A small process tree with an engine's titles and port: `python -m tests.support.tiny_engine`.

Main process, `sglang::scheduler_TPn` and `sglang::detokenizer`, as real processes that can be
stopped and killed. A killed child ends the whole, as SGLang does: its line in the log, then -9.
SIGUSR1 ends its loading; while it serves, it hangs: /health is not answered, and no process shows
why.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.http_engine import Engine, serving

LIFE_S = 240.0


def child(title: str) -> subprocess.Popen[bytes]:
    """A process whose command line is `title` alone; it ends when its parent does (end of file)."""
    return subprocess.Popen([title], executable="/bin/cat", stdin=subprocess.PIPE)


def say(text: str) -> None:
    print(time.strftime("[%Y-%m-%d %H:%M:%S] ") + text, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--load-s", type=float, default=0.2)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--fail", help="print this line and exit 1 instead of serving")
    parser.add_argument("--api-key", help="shown in the log, as SGLang does")
    parser.add_argument("--piece", help="one more piece of each streamed answer, as it is")
    args = parser.parse_args()
    titles = [f"sglang::scheduler_TP{rank}" for rank in range(args.ranks)]
    if args.ranks == 1:
        titles = ["sglang::scheduler"]
    children = {title: child(title) for title in [*titles, "sglang::detokenizer"]}
    say("server_args={'model_path': '/m', 'api_key': 'sk-planted'}")
    say(f"api_key={args.api_key!r}")
    say("Load weight begin. avail mem=90.00 GB")
    loaded = threading.Event()
    signal.signal(signal.SIGUSR1, lambda number, frame: loaded.set())
    loaded.wait(args.load_s)
    if args.fail:
        say(args.fail)
        return 1
    say("Load weight end. elapsed=0.20 s, type=Tiny, avail mem=80.00 GB, mem usage=10.00 GB.")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    engine = Engine(model=args.model, piece=args.piece.encode() if args.piece else None)
    # Hang: answer nothing any more, while every process looks alive.
    signal.signal(signal.SIGUSR1, lambda number, frame: setattr(engine, "health_delay_s", 600.0))
    with serving(engine, args.port):
        say(f"INFO:     Uvicorn running on http://127.0.0.1:{args.port} (Press CTRL+C to quit)")
        say("The server is fired up and ready to roll!")
        # A test that is killed cannot end it, and a watch must not: it ends by itself.
        end = time.monotonic() + LIFE_S
        while time.monotonic() < end:
            time.sleep(0.1)
            for title, process in children.items():
                if process.poll() is not None:
                    name = title.replace("sglang::", "")
                    say(
                        f"Subprocess {name} (pid={process.pid}) crashed with exit code "
                        f"{process.returncode}. Triggering SIGQUIT for cleanup..."
                    )
                    os.kill(os.getpid(), signal.SIGKILL)
    return 0


@contextmanager
def running(
    port: int, *arguments: str, log: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """The tiny engine as a process group of its own, gone afterwards."""
    with contextlib.ExitStack() as stack:
        target = stack.enter_context(open(log, "ab")) if log else subprocess.DEVNULL
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.tiny_engine", "--port", str(port), *arguments],
            stdout=target,
            stderr=subprocess.STDOUT if log else subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
