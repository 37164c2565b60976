"""What another team's service does: GPU memory, a port, /v1/models, /v1/completions.

    python holder.py GIB [PORT] [TITLE]     (needs torch; one process a GPU, GIB GiB each)

TITLE is what each worker calls itself, its GPU's number behind it (`VLLM::Worker_TP`).
The workers ignore SIGTERM; the main process ends 2 s after it and takes them with it.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def work(index: int, gib: float, title: str) -> None:
    import torch
    from title import retitle  # lies beside this file on the host

    if title:
        retitle(f"{title}{index}")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # Under its title before it has memory: nobody sees one without the other.
    kept = torch.empty(int(gib * 2**30), dtype=torch.uint8, device=f"cuda:{index}")
    kept.fill_(1)
    torch.cuda.synchronize()
    while os.getppid() != 1:
        time.sleep(0.5)


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        known = {"/health": {}, "/v1/models": {"object": "list", "data": [{"id": "kimi"}]}}
        self.answer(known.get(self.path))

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        choice = {"index": 0, "text": " Paris.", "message": {"content": "Paris."}}
        self.answer({"id": "1", "choices": [choice], "usage": {"completion_tokens": 2}})

    def answer(self, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(404 if document is None else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        return


def main() -> None:
    gib = float(sys.argv[1])
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    title = sys.argv[3] if len(sys.argv) > 3 else ""
    import torch

    count = torch.cuda.device_count()
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=work, args=(i, gib, title)) for i in range(count)]
    for worker in workers:
        worker.start()

    def end(*_: object) -> None:
        time.sleep(2)
        for worker in workers:
            worker.kill()
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    if port:
        ThreadingHTTPServer(("127.0.0.1", port), Answers).serve_forever()
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
