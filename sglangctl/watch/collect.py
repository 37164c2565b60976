"""Gathers the events of one run: log, processes, GPUs, port, HTTP probes.

One thread does everything but what may hang: HTTP questions, the driver and the proof have each
a thread of their own with one question in flight, and their answers are taken when they are there.
"""

from __future__ import annotations

import math
import os
import queue
import re
import select
import time
from collections.abc import Callable, Container
from dataclasses import replace
from typing import Any

from sglangctl.engine import kinds, port_owner
from sglangctl.engine.generate import Generation
from sglangctl.engine.http import Answer, Endpoint, Prober, ask, error_name
from sglangctl.engine.kinds import Kind
from sglangctl.engine.processes import Collector, Process, shape
from sglangctl.engine.readiness_facts import Proof, gather
from sglangctl.engine.run import Run
from sglangctl.gpu import gpus
from sglangctl.proc import oom, procfs, sockets
from sglangctl.proc.as_user import NoAnswer
from sglangctl.proc.pidwatch import Pidwatch
from sglangctl.state.config import EngineConfig, Readiness
from sglangctl.systemd import unit_run
from sglangctl.util import lazy_re
from sglangctl.watch import event_fields, missing_files
from sglangctl.watch.damaged_files import Damages
from sglangctl.watch.jit_caches import JitCaches
from sglangctl.watch.logtail import MARK_PREFIX, WAIT_PREFIX, Logtail, Piece
from sglangctl.watch.recorder import Recorder

LOG_S = 0.25
GPU_UP_S = 5.0
SOCKET_UP_S = 30.0
SMI_S = 5.0
"""Between two looks where nvidia-smi answers: each one is a process of its own."""
TICK_S = 1.0
JIT_S = 2.0
"""Between two looks at the compile caches, while the proof walks."""
PROOF_TRIES = 3
PROOF_AGAIN_S = 30.0
CRASH = lazy_re.compile(r"exit ?code|sigquit", re.I)
"""In a line of the engine on a process of its own that ended."""
SOFT_ENDS = (0, -15, 143)
"""Exit statuses of an engine that was asked to end, as far as they show it."""
STOP_NEWS_S = 0.8


class Collection:
    """The events of one run, from now on. `prove`: generate once when it serves. `asked_by`: who
    it is that has the unit stopped, asked when somebody has. `accept`: measures the acceptance's load
    after the proof; None where that is not wanted, or was done. `at_gate`: another engine has the port
    as yet, and nothing is asked there."""

    def __init__(
        self,
        config: EngineConfig,
        run: Run,
        where: Endpoint,
        tail: Logtail,
        recorder: Recorder,
        prove: bool = True,
        asked_by: Callable[[], str] = lambda: "systemd",
        show: Callable[[str], None] = lambda text: None,
        later: Callable[[], Container[str]] | None = None,
        jit: JitCaches | None = None,
        accept: Callable[[Kind], dict[str, Any] | None] | None = None,
        at_gate: bool = False,
    ) -> None:
        self.config, self.run, self.recorder = config, run, recorder
        self._where, self._tail, self._prove = where, tail, prove
        self._limits = config.limits
        self._asked_by, self._show = asked_by, show
        self._internal_errors: set[str] = set()
        self._files_answer = True
        self._damages = Damages(self._models, config.user)
        self._collector = Collector()
        self.processes: list[Process] = []
        self._shape: Any = None
        self._owner: port_owner.Owner | str | None = "unknown"
        self._stop_said = False
        self._kills = oom.Counter(oom.memory_folder(run.main_pid))
        self.main = Pidwatch(run.main_pid)
        tail.fence(run.id, self.main.gone, later)
        self._pipe = os.pipe()
        os.set_blocking(self._pipe[0], False)
        os.set_blocking(self._pipe[1], False)
        self._http = Prober(self.wake)
        self._gpu = Prober(self.wake)
        self._proof = Prober(self.wake)
        self._accept = accept
        self._jit, self._jit_look = jit, Prober(self.wake)
        self._walks: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        """What the proof, in its thread, has to say of the path that it walks."""
        self._proofs = 0
        self._proof_due = 0.0
        self._due = dict.fromkeys(("log", "look", "gpu", "health", "tick", "jit"), 0.0)
        self._socket_due = 0.0
        if at_gate:
            # Nor are the GPUs looked at: what is on them is the other's.
            self._socket_due = self._due["health"] = self._due["gpu"] = math.inf

    def wake(self) -> None:
        """End a sleep; may be called from any thread, and from a signal handler."""
        try:
            os.write(self._pipe[1], b"x")
        except (BlockingIOError, OSError):
            return  # enough wake-ups are under way, or we are closed already

    def sleep(self, limit_s: float = TICK_S) -> None:
        """Until something is due, an answer is there or the main process ends."""
        now = time.monotonic()
        due = min(self._due[name] for name in self._due if name != "jit")
        if self.recorder.due is not None:
            due = min(due, self.run.launched + self.recorder.due)
        poller = select.poll()
        poller.register(self._pipe[0], select.POLLIN)
        if self.main.fileno is not None:
            poller.register(self.main.fileno, select.POLLIN)
        wait_s = max(0.0, min(limit_s, due - now))
        poller.poll(wait_s * 1000 + 1)
        try:
            while os.read(self._pipe[0], 4096):
                pass
        except BlockingIOError:
            return

    def step(self) -> None:
        """Everything that is due now."""
        now = time.monotonic()
        up = self.recorder.up
        self._answers()
        if self._is_due("log", now, LOG_S * (2 if up else 1)):
            pieces = self._tail.poll()
            if any(CRASH.search(piece.text) for piece in pieces):
                # The kernel's counters first: they say why a process ended with -9.
                self._due["look"] = now + self._limits.sample_s
                self._look(now, up)
            self._log(pieces)
        if self._is_due("look", now, self._limits.sample_s):
            self._look(now, up)
        if now >= self._due["gpu"] and self._gpu.start(gpus.read):
            self._due["gpu"] = now + (GPU_UP_S if up else self._limits.sample_s)
        where, limit_s = self._where, self._limits.http_timeout_s
        if now >= self._due["health"] and self._http.start(lambda: ask(where, "/health", limit_s)):
            self._due["health"] = now + 3600.0  # set anew when the answer is there
        self._start_proof(now, up)
        if self._jit is not None and self.recorder.walking and self._is_due("jit", now, JIT_S):
            self._jit_look.start(self._jit.grown)
        t = self.run.t()
        due = self.recorder.due
        if self._is_due("tick", now, TICK_S) or (due is not None and t >= due):
            self.recorder.tick(t)

    def finish(self, returncode: int | None) -> None:
        """The main process is gone, with this status (None: not to be found out): its last words, then
        the `exit` event."""
        self._answers()
        kills = self._kills.kills()
        if kills:
            self.recorder.record(self.run.t(), "process", oom_kills=kills)
        self._log(self._tail.drain())
        self._note_stop()
        asked = time.monotonic() + STOP_NEWS_S
        soft = returncode in SOFT_ENDS and self.run.folder is not None
        while soft and not self._stop_said and time.monotonic() < asked:
            # The system's journal tells of a stop a moment after the stop has done its work.
            time.sleep(0.1)
            self._note_stop()
        pids = {process.pid for process in self.processes} | {self.run.main_pid}
        fields = event_fields.exit(returncode, kills, self.run.launched, pids)
        self.recorder.record(self.run.t(), "exit", **fields)

    def close(self) -> None:
        for prober in (self._http, self._gpu, self._proof, self._jit_look):
            prober.close()
        self.main.close()
        self._tail.close()
        for descriptor in self._pipe:
            os.close(descriptor)
        self._pipe = (-1, -1)

    def ask_anew(self, readiness: Readiness) -> None:
        """What `ready` asks has changed: prove it once more, by that."""
        self.config = replace(self.config, readiness=readiness)
        self._prove, self._proofs, self._proof_due = True, 0, 0.0

    def stopping(self, by: str | None = None) -> None:
        """Say once that this end is wanted."""
        if self._stop_said:
            return
        self._stop_said = True
        fields: dict[str, Any] = {"by": by} if by else {}
        self.recorder.record(self.run.t(), "step", step="stop", **fields)

    def _is_due(self, name: str, now: float, interval_s: float) -> bool:
        if now < self._due[name]:
            return False
        self._due[name] = now + interval_s
        return True

    def _log(self, pieces: list[Piece]) -> None:
        for piece in pieces:
            text = piece.text
            if WAIT_PREFIX in text or MARK_PREFIX in text:
                # What `sglangctl wait` said of a failure is not evidence of another.
                lines = text.splitlines(keepends=True)
                ours = (WAIT_PREFIX, MARK_PREFIX)
                text = "".join(line for line in lines if not line.startswith(ours))
            if text:
                # Before the line: what it means depends on it.
                for path, why in self._closed(text).items():
                    self.recorder.record(self.run.t(), "file", path=path, readable=False, why=why)
                for path, damage in self._damages.named(text):
                    self.recorder.record(self.run.t(), "file", path=path, damage=damage)
                self.recorder.record(self.run.t(), "log", data=text, offset=piece.offset)

    def _closed(self, text: str) -> dict[str, str]:
        if not self._files_answer:
            return {}
        try:
            return missing_files.closed(text, self._models, self.config.user)
        except NoAnswer:
            self._files_answer = False  # their server is dead: asked once a start
            return {}

    def _look(self, now: float, up: bool) -> None:
        """Processes; and the port, less often once it is the engine's."""
        pids = self.run.pids()
        self.processes = self._collector.sample(pids)
        fields: dict[str, Any] = {
            "processes": [process.event() for process in self.processes],
        }
        kills = self._kills.kills()
        if kills:
            fields["oom_kills"] = kills
        if event_fields.frozen(self.run.folder, self.run.main_pid):
            fields["frozen"] = True
        found = (shape(self.processes), kills, fields.get("frozen"))
        changed = self._shape is not None and found != self._shape
        self._shape = found
        self.recorder.record(self.run.t(), "process", alarming=changed, **fields)
        if now >= self._socket_due:
            self._look_at_port()
            self._socket_due = now + (SOCKET_UP_S if up and self._port_is_ours else 0.0)

    @property
    def _models(self) -> tuple[str, ...]:
        """Where the model and the drafter lie."""
        drafter = self.config.drafter
        found = (self.config.model, drafter.path if drafter is not None else None)
        return tuple(path for path in found if path)

    @property
    def _port_is_ours(self) -> bool:
        return isinstance(self._owner, port_owner.Owner) and self._owner.ours is True

    def _look_at_port(self) -> None:
        owner = port_owner.find(
            self.config.port,
            self.config.listen,
            [process.pid for process in self.processes],
            self.run.main_pid,
        )
        if owner is not None and owner.ours and not self._younger(owner.pid):
            owner = port_owner.Owner(owner.port, owner.pid, False)
        if owner == self._owner:
            return
        self._owner = owner
        fields = event_fields.socket(self.config.port, owner)
        self.recorder.record(self.run.t(), "socket", **fields)

    def _younger(self, pid: int | None) -> bool:
        """Whether a process began after the launch (a left-over of the last run did not)."""
        main = procfs.stat(self.run.main_pid)
        found = procfs.stat(pid) if pid is not None else None
        return main is None or found is None or found.start >= main.start

    def _answers(self) -> None:
        answer = self._http.poll()
        if isinstance(answer, Exception):
            self._show_internal_error(answer)
            answer = Answer("/health", None, error_name(answer), 0.0)
        if answer is not None:
            self._take_http(answer)
        reading = self._gpu.poll()
        if isinstance(reading, Exception):
            self._show_internal_error(reading)
            reading = gpus.Reading(None, "none")
        if reading is not None:
            self._take_gpus(reading)
        grown = self._jit_look.poll()
        if isinstance(grown, Exception):
            self._show_internal_error(grown)
        elif grown:
            self.recorder.record(self.run.t(), "cache", grown=list(grown))
        self._take_walks()
        proof = self._proof.poll()
        if isinstance(proof, Exception):
            self._show_internal_error(proof)
            self._take_broken_proof(proof)
        elif proof is not None:
            self._take_proof(proof)

    def _take_http(self, answer: Answer) -> None:
        up = self.recorder.up
        pause = self._limits.probe_serving_s if up else self._limits.probe_starting_s
        self._due["health"] = time.monotonic() + pause
        fields = event_fields.http(answer)
        if answer.error != "ConnectionRefusedError" and not self._port_is_ours:
            # Somebody answers: who it is belongs before the answer.
            self._look_at_port()
        bad = answer.status != 200
        if up and bad:
            self._note_stop()
        if up:
            clients = sockets.connections(self.config.port, self.run.main_pid)
            if clients is not None:
                fields["clients"] = clients
        self.recorder.record(self.run.t(), "http", alarming=up and bad, **fields)
        if self.recorder.up and not up:
            # It has just come up: the next questions need not wait for the old rhythm.
            self._due["health"] = time.monotonic()
            self._socket_due = 0.0

    def _take_gpus(self, reading: gpus.Reading) -> None:
        if reading.gpus is None:
            self._due["gpu"] = time.monotonic() + 60.0
            return
        if reading.source != "nvml":
            self._due["gpu"] = max(self._due["gpu"], time.monotonic() + SMI_S)
        ours = {process.pid for process in self.processes}
        fields = event_fields.gpu(reading.gpus, self.config.gpus, ours)
        self.recorder.record(self.run.t(), "gpu", **fields)

    def _start_proof(self, now: float, up: bool) -> None:
        ours = isinstance(self._owner, port_owner.Owner) and self._owner.ours is not False
        wanted = self._prove and up and ours and self._proofs < PROOF_TRIES
        if not wanted or now < self._proof_due:
            return
        config, where, run = self.config, self._where, self.run

        def question() -> Proof:
            proof = gather(config, where, run.main_pid, run.pids(), walking=self._walking)
            if self._accept is None or proof.walks is None or proof.walks.faulty:
                return proof
            self._walking("the load of the acceptance", 0, 0)
            return replace(proof, load=self._accept(kinds.named(proof.model_kind)))

        if self._proof.start(question):
            self._proofs += 1
            self._proof_due = now + 3600.0  # set anew if another try is wanted

    def _walking(self, name: str, number: int, total: int) -> None:
        """From the proof's thread: which path it walks now."""
        self._walks.put({"path": name, "number": number, "of": total})
        self.wake()

    def _take_walks(self) -> None:
        while True:
            try:
                fields = self._walks.get_nowait()
            except queue.Empty:
                return
            self.recorder.record(self.run.t(), "warm", **fields)

    def _take_proof(self, proof: Proof) -> None:
        models = event_fields.models(proof)
        if models is not None:
            self.recorder.record(self.run.t(), "http", **models)
        fields = event_fields.generate(proof, self.config.drafter is not None)
        if fields is not None:
            self.recorder.record(self.run.t(), "generate", **fields)
        unwalked = proof.walks is not None and proof.walks.faulty
        if fields is None or fields["status"] != 200 or unwalked:
            # The probes say why; once more a little later.
            self._proof_due = time.monotonic() + PROOF_AGAIN_S

    def _take_broken_proof(self, error: Exception) -> None:
        """A question that broke off has proven nothing, and that is what the journal says."""
        name = error_name(error)
        fault = f"the proof ended with an internal error: {name}: {error}"[:300]
        broken = Generation(None, name, 0.0, text_ok=False, fault=fault)
        self.recorder.record(self.run.t(), "generate", **broken.event())
        self._proof_due = time.monotonic() + PROOF_AGAIN_S

    def _show_internal_error(self, error: Exception) -> None:
        """Report an internal error once of each kind: it does not end the watch."""
        name = error_name(error)
        if name not in self._internal_errors:
            self._internal_errors.add(name)
            self._show(f"continues after an internal error: {name}: {error}; please report it")

    def _note_stop(self) -> None:
        if (
            not self._stop_said
            and self.run.folder is not None
            and unit_run.being_stopped(self.config.unit, self.run.id)
        ):
            self.stopping(self._asked_by())
