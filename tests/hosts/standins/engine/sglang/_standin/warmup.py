"""The warm-up: the engine's own first requests, sent to whoever answers on its port."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable

from sglang._standin import options
from sglang._standin.flags import ServerArgs
from sglang._standin.log import VERSION, traceback

FRAME = ("sglang/srt/entrypoints/http_server.py", 2376, "_execute_server_warmup")


class WarmupError(Exception):
    """The text that follows `Initialization failed. warmup error: `."""


def warm_up(args: ServerArgs, asking: Callable[[], None]) -> None:
    """GET /model_info until it answers, then one generation; WarmupError when it fails.

    `asking` is called when the generation is about to be asked for.
    """
    error = ""
    for attempt in range(120):
        time.sleep(options.scaled(1) if attempt else 0.1)
        try:
            status, text = _ask(args, "GET", "/model_info", None)
            error = f"AssertionError: res=<Response [{status}]>, res.text={text!r}"
            if status == 200:
                break
        except OSError as problem:
            error = f"requests.exceptions.ConnectionError: {problem}"
    else:
        raise WarmupError(traceback(error, FRAME))
    asking()
    time.sleep(options.phase_s("warming"))
    body = {"text": "The capital city of France is", "sampling_params": {"max_new_tokens": 8}}
    status, text = _ask(args, "POST", "/generate", body)
    if status != 200:
        text = f"AssertionError: res=<Response [{status}]>, res.text={text!r}"
        raise WarmupError(traceback(text, FRAME))
    if VERSION >= (0, 5, 20):
        _ask(args, "POST", "/freeze_gc", {})


def _ask(args: ServerArgs, method: str, path: str, body: object) -> tuple[int, str]:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(args.host, args.host)
    connection = http.client.HTTPConnection(host, args.port, timeout=600)
    headers = {"Content-Type": "application/json"}
    if args.api_key:
        headers["Authorization"] = f"Bearer {args.api_key}"
    try:
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, headers)
        response = connection.getresponse()
        return response.status, response.read().decode("utf-8", "replace")
    except http.client.HTTPException as error:
        raise OSError(str(error)) from None
    finally:
        connection.close()
