#!/opt/vllm/bin/python
"""A stand-in for `vllm serve`: its process tree, titles and manners, without a model.

Main process (comm `vllm`, not retitled) -> resource tracker, `VLLM::EngineCore` -> a
`VLLM::Worker` a GPU. The children know nothing of their parent: they survive a kill -9 of it,
keep their devices and its session. README.md lists the VLLM_STANDIN_* variables.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from multiprocessing import resource_tracker
from typing import Any, NoReturn

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE), os.path.join(os.path.dirname(HERE), "lib")]
from shared.devices import Devices  # noqa: E402
from shared.http_server import Answer, Request, Server, answer, bearer, listen  # noqa: E402
from shared.title import retitle  # noqa: E402


def option(name: str, default: str) -> str:
    return os.environ.get(f"VLLM_STANDIN_{name}", default)


START_S = float(option("START_S", "1.0"))
STOP_S = float(option("STOP_S", "1.0"))
MEMORY_MIB = float(option("MEMORY_MIB", "76000"))
FOLDER = option("DEVICES", "/dev")
IGNORE_TERM = option("IGNORE_TERM", "") == "1"
NO_GPU = option("GPUS", "") == "none"


class State:
    """What the API process knows of its engine."""

    def __init__(self, args: argparse.Namespace, engine: int) -> None:
        self.args = args
        self.engine = engine
        self.alive = True
        self.in_flight = 0

    def route(self, request: Request) -> Answer:
        key = self.args.api_key
        if key and request.path.startswith("/v1") and bearer(request.headers) != key:
            return answer(401, {"error": "Unauthorized"})
        if request.path in ("/health", "/ping"):
            return (200 if self.alive else 503), "", b""
        if request.path == "/version":
            return answer(200, {"version": "0.32.0"})
        if request.path == "/v1/models":
            names = self.args.served_model_name or [self.args.model]
            rows = [
                {"id": name, "object": "model", "owned_by": "vllm", "root": self.args.model}
                for name in names
            ]
            return answer(200, {"object": "list", "data": rows})
        if request.path in ("/v1/completions", "/v1/chat/completions"):
            return self._complete(request)
        return answer(404, {"detail": "Not Found"})

    def _complete(self, request: Request) -> Answer:
        try:
            body = request.json()
        except ValueError as error:
            return answer(400, {"error": {"message": str(error)}})
        names = self.args.served_model_name or [self.args.model]
        if body.get("model") not in [None, *names]:
            text = f"The model `{body.get('model')}` does not exist."
            return answer(404, {"error": {"message": text, "type": "NotFoundError"}})
        if not self.alive:
            return answer(500, {"error": {"message": "EngineCore encountered an issue."}})
        self.in_flight += 1
        try:
            time.sleep(float(option("GENERATE_S", "0.05")))
        finally:
            self.in_flight -= 1
        words = [
            "The",
            "capital",
            "of",
            "France",
            "is",
            "Paris",
            "and",
            "it",
            "lies",
            "on",
            "the",
            "river",
            "Seine",
        ]
        words = words[: int(body.get("max_tokens") or 16)]
        usage = {"prompt_tokens": 8, "completion_tokens": len(words), "total_tokens": 8}
        usage["total_tokens"] += len(words)
        choice: dict[str, Any] = {"index": 0, "finish_reason": "length", "text": " ".join(words)}
        if request.path.endswith("chat/completions"):
            choice["message"] = {"role": "assistant", "content": choice.pop("text")}
        return answer(
            200,
            {
                "id": "cmpl-1",
                "model": body.get("model", names[0]),
                "choices": [choice],
                "usage": usage,
            },
        )


def gpus(size: int) -> list[int]:
    """The engine's GPUs: VLLM_STANDIN_GPUS (`0,1`, `none`), else CUDA_VISIBLE_DEVICES."""
    text = option("GPUS", "") or os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if NO_GPU:
        return []
    return ([int(word) for word in text.split(",")] if text else list(range(size)))[:size]


def rest(what: str, held: Devices, parent: int | None = None) -> NoReturn:
    """An engine process at rest. It ends at once on SIGTERM unless told to ignore it.

    With `parent`, it ends some seconds after that process did.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN if IGNORE_TERM else signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    retitle(what)
    while parent is None or os.getppid() == parent:
        time.sleep(0.5)
    time.sleep(float(option("WORKER_DEAD_S", "5")))
    os._exit(len(held.gpus) and 1)


def start_engine(mine: list[int]) -> int:
    """Fork EngineCore and its workers; returns EngineCore's pid."""
    engine = os.fork()
    if engine:
        return engine
    me = os.getpid()
    for rank, gpus_of_rank in enumerate([[gpu] for gpu in mine] or [[]]):
        if os.fork() == 0:
            held = Devices(gpus_of_rank, FOLDER)
            held.report(MEMORY_MIB)
            rest("VLLM::Worker" if len(mine) < 2 else f"VLLM::Worker_TP{rank}", held, me)
    # It holds the devices too, without memory: nvidia-smi does not list it, /proc does.
    rest("VLLM::EngineCore", Devices(mine, FOLDER))


def serve(state: State, listener: Any) -> threading.Thread:
    """Answer requests in a thread."""
    server = Server(listener, state.route, lambda line: print(f"INFO:     {line}", flush=True))
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
    thread.start()
    return thread


def start_api_servers(args: argparse.Namespace, engine: int, listener: Any) -> list[int]:
    """With --api-server-count N: children that share the listening socket."""
    pids = []
    for number in range(args.api_server_count):
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN if IGNORE_TERM else signal.SIG_DFL)
            retitle(f"VLLM::APIServer_{number}")
            serve(State(args, engine), listener).join()
            os._exit(0)
        pids.append(pid)
    return pids


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="vllm")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("serve")
    command.add_argument("model")
    command.add_argument("--host", default="0.0.0.0")
    command.add_argument("--port", type=int, default=8000)
    command.add_argument("--served-model-name", nargs="+")
    command.add_argument("--tensor-parallel-size", "-tp", type=int, default=1)
    command.add_argument("--api-server-count", type=int, default=1)
    command.add_argument("--api-key")
    for name in ["--max-model-len", "--dtype", "--gpu-memory-utilization", "--quantization"]:
        command.add_argument(name)
    for name in ["--enforce-eager", "--trust-remote-code"]:
        command.add_argument(name, action="store_true")
    return parser.parse_args(argv)


def log(text: str) -> None:
    stamp = time.strftime("%m-%d %H:%M:%S")
    print(f"(APIServer pid={os.getpid()}) INFO {stamp} {text}", file=sys.stderr, flush=True)


def main(argv: list[str]) -> int:
    args = parse(argv)
    stop = threading.Event()
    mine = gpus(args.tensor_parallel_size)
    log(f"[api_utils.py:347] version 0.32.0 model {args.model}")
    if args.model.startswith("/") and not os.path.isdir(args.model):
        raise OSError(
            f"Repo id must be in the form 'repo_name' or 'namespace/repo_name': '{args.model}'"
        )
    resource_tracker.ensure_running()
    engine = start_engine(mine)
    held = Devices(mine, FOLDER)
    time.sleep(START_S)
    listener = listen(args.host, args.port)
    state = State(args, engine)
    others = [] if args.api_server_count < 2 else start_api_servers(args, engine, listener)
    if IGNORE_TERM:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
    if not others:
        serve(state, listener)
    log(f"Starting vLLM server on http://{args.host}:{args.port}, {len(held.gpus)} GPUs")
    code = 0
    while not stop.wait(0.1):
        if os.waitpid(engine, os.WNOHANG) != (0, 0):
            state.alive = False
            log("[core_client.py] Engine core proc EngineCore died unexpectedly")
            time.sleep(float(option("ENGINE_DEAD_S", "2.6")))
            kill_children(None, others)
            return code
    log("[launcher.py] Shutting down FastAPI HTTP server.")
    children(signal.SIGKILL if state.in_flight else signal.SIGTERM, engine)
    while state.in_flight:
        time.sleep(0.1)
    time.sleep(STOP_S)
    # One that does not end (stopped, say) is waited for, then killed.
    end = time.monotonic() + float(option("TERM_S", "45"))
    gone = False
    while not gone and time.monotonic() < end:
        gone = os.waitpid(engine, os.WNOHANG) != (0, 0)
        time.sleep(0.05)
    kill_children(None if gone else engine, others)
    return code


def children(number: int, engine: int) -> None:
    """Signal EngineCore and its workers (known by their parent, while it lives)."""
    for pid in [*children_of(engine), engine]:
        kill(pid, number)


def children_of(parent: int) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as file:
                    if int(file.read().rpartition(")")[2].split()[1]) == parent:
                        found.append(int(name))
            except (OSError, IndexError, ValueError):
                continue
    return found


def kill_children(engine: int | None, others: list[int]) -> None:
    if engine is not None:
        children(signal.SIGKILL, engine)
    for pid in others:
        kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)
