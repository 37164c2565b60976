"""The main process: arguments, children, the port, and the end."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import queue
import signal
import socket
import sys
import threading
import time
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from sglang._standin import detokenizer, errors, options, rank, replay, resolution, wiring
from sglang._standin.ending import Ending
from sglang._standin.flags import ServerArgs, prepare_server_args
from sglang._standin.log import VERSION, Log, raw, traceback
from sglang._standin.manager import Manager
from sglang._standin.shared.devices import Devices
from sglang._standin.shared.http_server import Server, listen
from sglang._standin.warmup import WarmupError, warm_up

FRAMES = [
    ("sglang/launch_server.py", 84, "<module>"),
    ("sglang/srt/server_args.py", 277, "resolve_once"),
]


def main(argv: list[str]) -> NoReturn:
    """Play one run of the engine; never returns."""
    raw(
        f"{os.path.dirname(os.path.dirname(__file__))}/launch_server.py:71: UserWarning: 'python "
        "-m sglang.launch_server' is still supported, but 'sglang serve' is the recommended "
        "entrypoint.\n  Example: sglang serve --model-path <model> [options]\n  warnings.warn(\n"
    )
    time.sleep(options.phase_s("launching"))
    args = prepare_server_args(argv)
    log = Log(args.log_level)
    try:
        config = resolution.resolve(args, log)
        Launcher(args, log, config).run()
    except errors.LauncherError as error:
        me = os.getpid()
        log.line(f"kill_process_tree called: parent_pid={me}, include_parent=False, pid={me}")
        raw(traceback(str(error), *FRAMES, *error.frames))
        os._exit(1)
    except Exception:
        # Without this, Python would wait for the children before it ends.
        sys.excepthook(*sys.exc_info())
        for child in multiprocessing.active_children():
            child.kill()
        os._exit(1)


class Launcher:
    """The main process, from its children to its end."""

    def __init__(self, args: ServerArgs, log: Log, config: dict[str, Any]) -> None:
        self.args = args
        self.log = log
        self.config = config
        self.events: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self.ending = Ending(args, log)
        self.begin = time.monotonic()
        self.told = threading.Event()
        """SIGTERM came."""
        self.asked = threading.Event()
        """The first request came: the engine's own way of ending is in place from here on."""
        self.gpus = self._gpus()

    def _gpus(self) -> list[int]:
        """One device index a rank; -1 for one that is not there, nothing on a processor."""
        if self.args.device == "cpu":
            return []
        mine = resolution.visible()
        first, step = self.args.base_gpu_id, self.args.gpu_id_step
        places = [first + step * number for number in range(self.args.tp_size)]
        return [mine[place] if place < len(mine) else -1 for place in places]

    def run(self) -> NoReturn:
        """The whole life of the engine."""
        held = Devices([gpu for gpu in self.gpus if gpu >= 0], options.devices())
        if replay.asked():
            replay.play(self, held)
        self.log.line("Fail to set RLIMIT_NOFILE: current limit exceeds maximum limit", "warning")
        items = self.args.items()
        if VERSION >= (0, 5, 20):
            self.log.line(f"server_args={items}")
        else:
            inside = ", ".join(f"{key}={value!r}" for key, value in items.items())
            self.log.line(f"server_args=ServerArgs({inside})")
        self.log.line(
            "Using default HuggingFace chat template with detected content format: string"
        )
        signal.signal(signal.SIGQUIT, lambda *_: self.ending.child_failed_in_start())
        manager, tokens = self.await_ranks(self.spawn())
        self._serve(manager, tokens, held)

    def await_ranks(self, links: dict[str, Any]) -> tuple[Manager, int]:
        """Wait for all ranks; from then on a dead child is a crash while serving."""
        ready = self._wait_ready(links["ready"])
        self.ending.serving_from_here()
        signal.signal(signal.SIGQUIT, lambda *_: self.events.put(("quit", None)))
        manager = Manager(
            self.args,
            self.log,
            links["requests"],
            links["control"],
            links["texts"],
            lambda event: self.events.put((event, None)),
        )
        self.ending.manager = manager
        threading.Thread(target=self._watchdog, daemon=True).start()
        return manager, int(ready["max_total_num_tokens"])

    def spawn(self) -> dict[str, Any]:
        """Start the ranks and the detokenizer with multiprocessing's spawn, as the engine does."""
        context = multiprocessing.get_context("spawn")
        pipe = multiprocessing.connection.Pipe
        requests_in, requests = pipe(duplex=False)
        control, control_out = pipe(duplex=False)
        tokens_in, tokens_out = pipe(duplex=False)
        texts, texts_out = pipe(duplex=False)
        size, me = self.args.tp_size, os.getpid()
        steps = [pipe() for _ in range(size - 1)]
        ready: list[Connection] = []
        # Kept open here on purpose: a process that dies must be seen by the watchdog's tick,
        # not by a broken pipe.
        self._kept = [requests_in, control_out, tokens_in, tokens_out, texts_out, steps]
        for number in range(size):
            ready_in, ready_out = pipe(duplex=False)
            ready.append(ready_in)
            given = wiring.Rank(
                number=number,
                size=size,
                args=self.args,
                config=self.config,
                parent=me,
                gpu=self.gpus[number] if self.gpus else None,
                ready=ready_out,
                leader=steps[number - 1][1] if number else None,
            )
            if number == 0:
                given.requests, given.control, given.tokens = requests_in, control_out, tokens_out
                given.followers = [mine for mine, _ in steps]
            process = context.Process(target=rank.run, args=(given,))
            process.start()
            self.ending.add(f"scheduler_{number}", process)
        gpus = [gpu for gpu in self.gpus if gpu >= 0]
        given_texts = wiring.Detokenizer(me, gpus, tokens_in, texts_out)
        process = context.Process(target=detokenizer.run, args=(given_texts,))
        process.start()
        self.ending.add("detokenizer", process)
        return {"ready": ready, "requests": requests, "control": control, "texts": texts}

    def _wait_ready(self, ready: list[Connection]) -> dict[str, Any]:
        """Until all ranks are up, however long; a dead one ends the start."""
        information: dict[str, Any] = {}
        waiting = dict(enumerate(ready))
        while waiting:
            for number, connection in list(waiting.items()):
                try:
                    if connection.poll(0.02):
                        information = connection.recv()
                        del waiting[number]
                        continue
                except EOFError:
                    # Its end of the pipe closed: it is ending. Its own report (SIGQUIT), if it
                    # made one, comes first.
                    time.sleep(0.2)
                code = self.ending.exit_code(f"scheduler_{number}")
                if code is not None:
                    time.sleep(0.2)
                    self.ending.rank_died_in_start(number, code)
        self.log.line(
            "Engine startup timings (s): load_weight=0.17, kv_cache_allocation=1.53, "
            f"scheduler_e2e=3.86, tokenizer_e2e={time.monotonic() - self.begin:.2f}"
        )
        return information

    def _watchdog(self) -> None:
        """Look at the children once a second."""
        while True:
            time.sleep(1)
            for name, process in self.ending.children.items():
                # One that ended with 0 is not seen, as in the real engine.
                if process.exitcode:
                    self.events.put(("dead", (name, process.pid, process.exitcode)))
                    return

    def _serve(self, manager: Manager, tokens: int, held: Devices) -> NoReturn:
        me = os.getpid()
        signal.signal(signal.SIGTERM, self._term)
        self.log.uvicorn(f"Started server process [{me}]")
        self.log.uvicorn("Waiting for application startup.")
        warm = threading.Thread(target=self._warm_up, args=(manager,), daemon=True)
        if self.args.skip_server_warmup:
            manager.status = "Up"
            self.asked.set()
        else:
            warm.start()
        self.told.wait(options.phase_s("binding"))
        self.log.uvicorn("Application startup complete.")
        address = (self.args.host, self.args.port)
        try:
            listener = listen(*address)
        except OSError as error:
            self.log.uvicorn(
                f"[Errno {error.errno}] error while attempting to bind on address {address}: "
                "address already in use",
                "ERROR",
            )
            self.log.uvicorn("Waiting for application shutdown.")
            self._port_taken(warm)
        self.answer(manager, tokens, listener)
        self.log.uvicorn(
            f"Uvicorn running on http://{address[0]}:{address[1]} (Press CTRL+C to quit)"
        )
        self.wait(held)

    def answer(self, manager: Manager, tokens: int, listener: socket.socket) -> None:
        """Serve requests on a bound socket."""
        from sglang._standin.server import Routes

        routes = Routes(manager, self.config, tokens)
        server = Server(listener, routes.route, self.log.access)
        self.ending.server = server
        threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()

    def wait(self, held: Devices) -> NoReturn:
        """Handle what happens, until one of it ends this process."""
        while held:
            self._handle(*self.events.get())
        raise AssertionError("unreachable")

    def _term(self, *_: object) -> None:
        self.told.set()
        self.events.put(("term", None))

    def _handle(self, event: str, detail: Any) -> None:
        if event == "dead":
            self.ending.child_died(*detail)
        elif event == "quit":
            self.ending.child_failed()
        elif event == "warmup-error":
            self.ending.warmup_failed(detail)
        elif event == "term" and self.asked.is_set():
            self.ending.stop(self.events)
        elif event == "term":
            self.ending.close()

    def _warm_up(self, manager: Manager) -> None:
        try:
            warm_up(self.args, self.asked.set)
        except WarmupError as error:
            self.events.put(("warmup-error", str(error)))
            return
        manager.status = "Up"
        self.log.line("The server is fired up and ready to roll!")
        self.events.put(("warm", None))

    def _port_taken(self, warm: threading.Thread) -> NoReturn:
        """Wait for the warm-up, which asks whoever has the port; SIGTERM does nothing here."""
        while True:
            event, detail = self.events.get()
            if event == "warm":
                self.log.uvicorn("Application shutdown complete.")
                self.ending.leave(3)
            if event != "term":
                self._handle(event, detail)
