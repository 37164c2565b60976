"""The ways in which the engine ends, each with its log lines and exit status."""

from __future__ import annotations

import os
import queue
import signal
import time
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any, NoReturn

from sglang._standin import options
from sglang._standin.flags import ServerArgs
from sglang._standin.log import VERSION, Log, raw, traceback

if TYPE_CHECKING:
    from sglang._standin.manager import Manager
    from sglang._standin.shared.http_server import Server

LAUNCH = ("sglang/srt/entrypoints/engine.py", 2013, "_wait_for_scheduler_ready")


class Ending:
    """Knows the children, and ends them and this process as the real engine does."""

    def __init__(self, args: ServerArgs, log: Log) -> None:
        self.args = args
        self.log = log
        self.children: dict[str, BaseProcess] = {}
        self.manager: Manager | None = None
        self.server: Server | None = None
        self.serving = False

    def add(self, name: str, process: BaseProcess) -> None:
        self.children[name] = process

    def serving_from_here(self) -> None:
        self.serving = True

    def exit_code(self, name: str) -> int | None:
        return self.children[name].exitcode

    def child_failed_in_start(self) -> NoReturn:
        """SIGQUIT of a rank while launching: kill all, and itself."""
        self.log.line(
            "Received sigquit from a child process. It usually means the child failed.", "error"
        )
        self.kill_all()

    def rank_died_in_start(self, number: int, code: int) -> NoReturn:
        """A rank is gone without a word: RuntimeError, exit status 1."""
        self._say_killing(False)
        raw(
            traceback(
                f"RuntimeError: Rank {number} scheduler died during initialization (exit code: "
                f"{code}). If exit code is -9 (SIGKILL), a common cause is the OS OOM killer. Run "
                "`dmesg -T | grep -i oom` to check.",
                LAUNCH,
            )
        )
        self._kill_children()
        time.sleep(options.scaled(2))
        os._exit(1)

    def child_died(self, name: str, pid: int, code: int) -> NoReturn:
        """Found by the watchdog's tick while serving."""
        self.log.line(
            f"Subprocess {name} (pid={pid}) crashed with exit code {code}. Triggering SIGQUIT "
            "for cleanup...",
            "error",
        )
        self.child_failed()

    def child_failed(self) -> NoReturn:
        """The crash path while serving: all requests hang, diagnostics, SIGKILL."""
        if self.server:
            self.server.frozen.set()
        self.log.line(
            "SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
            "error",
        )
        self._diagnose()
        self.kill_all()

    def _diagnose(self) -> None:
        self.log.line(
            "Sleeping 5 seconds before crash diagnostics to let GPU activity settle.", "error"
        )
        time.sleep(options.scaled(5))
        alive = [
            process
            for name, process in self.children.items()
            if name.startswith("scheduler") and process.exitcode is None
        ]
        if not alive or VERSION < (0, 5, 20):
            self.log.line(
                "No live scheduler processes found; skipping py-spy and CUDA coredump.", "error"
            )
            return
        for process in alive:
            self.log.line(f"All pyspy dump attempts failed for PID {process.pid}.", "error")
        self.log.line("Waiting 60.0 seconds for CUDA coredumps before exiting.", "error")
        time.sleep(options.scaled(60))

    def warmup_failed(self, error: str) -> NoReturn:
        self.log.line(f"Initialization failed. warmup error: {error}", "error")
        self.kill_all()

    def close(self) -> None:
        """SIGTERM before the first request: uvicorn's own end, which waits for the warm-up, which
        asks a closed port for two minutes and then fails."""
        self.log.uvicorn("Shutting down")
        if self.server:
            self.server.shutdown()
            self.server.socket.close()
        self.log.uvicorn("Waiting for application shutdown.")

    def stop(self, events: queue.SimpleQueue[tuple[str, Any]]) -> NoReturn:
        """SIGTERM after the first request: drain, let the scheduler go, leave. Where that request is
        the warm-up's own and still under way, nothing ends any more."""
        manager = self.manager
        assert manager
        manager.stopping = True
        self.log.line(
            "SIGTERM received. signum=None frame=None. Draining requests and shutting down..."
        )
        while manager.status == "Starting":
            time.sleep(3600)
        time.sleep(options.number("STOP_S", 0.5))
        said = 0.0
        while manager.remaining() or manager.status == "UnHealthy":
            if manager.status == "UnHealthy":
                self.log.line(
                    "Signal SIGTERM received while health check failed. Force exiting.", "error"
                )
                self._diagnose()
                break
            if time.monotonic() - said >= options.scaled(5):
                said = time.monotonic()
                self._say_remaining(manager)
            time.sleep(0.1)
        else:
            self._say_remaining(manager)
        manager.send({"kind": "shutdown"})
        self._wait_for_ranks()
        self._end_of_service(manager)

    def _say_remaining(self, manager: Manager) -> None:
        left = manager.remaining()
        self.log.line(
            f"Gracefully exiting... Remaining number of requests {len(left)}. Remaining requests "
            f"remaining_rids={left}."
        )

    def _wait_for_ranks(self) -> None:
        end = time.monotonic() + options.scaled(15)
        process = self.children["scheduler_0"]
        while process.exitcode is None and time.monotonic() < end:
            time.sleep(0.05)
        if process.exitcode is None:
            self.log.line(
                "Schedulers still alive 15s after ShutdownReq, killing them before they "
                f"released: [{process.pid}]",
                "warning",
            )
        self._say_killing(False)
        self._kill_children()

    def _end_of_service(self, manager: Manager) -> NoReturn:
        stop_exit = options.text("STOP_EXIT", "0" if self.args.device == "cpu" else "-9")
        if stop_exit == "-9":
            self.kill_all()
        self.log.uvicorn("Shutting down")
        if self.server:
            self.server.socket.close()
        if manager.waiting_info or options.text("STOP_HANGS") == "1":
            # A pending /server_info is never answered, and never let go either.
            self.log.uvicorn("Waiting for background tasks to complete. (CTRL+C to force quit)")
            while True:
                time.sleep(3600)
        self.log.uvicorn("Waiting for application shutdown.")
        self.log.uvicorn("Application shutdown complete.")
        self.log.uvicorn(f"Finished server process [{os.getpid()}]")
        self.leave(int(stop_exit))

    def leave(self, code: int) -> NoReturn:
        """End with an exit status of its own, all children gone."""
        self._say_killing(False)
        self._kill_children()
        os._exit(code)

    def as_recorded(self, returncode: int) -> NoReturn:
        """The end of a replayed journal."""
        self._kill_children()
        if returncode < 0:
            os.kill(os.getpid(), -returncode)
        os._exit(returncode)

    def kill_all(self) -> NoReturn:
        """kill_process_tree with the parent: exit status -9."""
        self._say_killing(True)
        self._kill_children()
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")

    def _say_killing(self, parent: bool) -> None:
        me = os.getpid()
        self.log.line(
            f"kill_process_tree called: parent_pid={me}, include_parent={parent}, pid={me}"
        )

    def _kill_children(self) -> None:
        for process in self.children.values():
            if process.exitcode is None and process.pid:
                os.kill(process.pid, signal.SIGKILL)
