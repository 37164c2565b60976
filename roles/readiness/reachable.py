"""Can clients reach the service? Asked from the controller, apart from how the engine is.

Who answers there cannot be seen from here. So the api key goes only where the certificate is right
(https), or to the engine's own port when its host has just shown that the engine owns it; name and
way to that host are then trusted as its clients trust them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

import requests
import urllib3

from roles.inventory.secret import SecretError
from roles.readiness.subject import Subject
from sglangctl.masking.masker import Masker
from sglangctl.util.terminal import cut, escaped
from sglangctl.util.values import json_object, mappings

TIMEOUT_S = 10.0
"""For the connection, and for each piece of the answer."""
WHOLE_S = 20.0
"""For the whole answer: it may come byte by byte."""
LARGEST = 256 * 1024
"""Bytes of an answer that are read; a list of models has some hundred."""
TRIES = 3
PAUSE_S = 2.0


@dataclass(frozen=True)
class Reach:
    """`ok` (None: it could not be asked) and a sentence for the operator."""

    ok: bool | None
    sentence: str


def reach(subject: Subject, proven: bool) -> Reach | None:
    """GET /v1/models where the inventory says clients go; None where it says nothing. `proven`: the
    host has shown in this run that the engine's port is the engine's."""
    if subject.reachable_at is None:
        return None
    url = subject.reachable_at.rstrip("/") + "/v1/models"
    try:
        key = subject.api_key.reveal() if subject.api_key else None
    except SecretError as error:
        return Reach(None, f"{url} cannot be asked without the api key: {error}")
    safe = url.startswith("https://") or (proven and urlsplit(url).port == subject.port)
    for attempt in range(TRIES):
        if attempt:
            time.sleep(PAUSE_S)
        result = _ask(url, subject, key, safe)
        if result.ok:
            break
    return result


@dataclass
class _Answer:
    status: int = 0
    body: bytes = b""
    error: str | None = None


def _ask(url: str, subject: Subject, key: str | None, safe: bool) -> Reach:
    mask = Masker([key] if key else []).mask
    answer = _Answer(error=f"its answer did not end within {WHOLE_S:g} s")
    # requests limits each wait for a piece, not the whole: in a thread, it can be left behind.
    asking = threading.Thread(
        target=_get, args=(url, key if safe else None, answer, mask), daemon=True
    )
    asking.start()
    asking.join(WHOLE_S)
    if answer.error is not None:
        return Reach(
            False,
            f"{url} cannot be reached from here ({answer.error}): look at `listen`, the "
            "firewall, the name and the proxy in front of it",
        )
    if answer.status in (401, 403) and key and not safe:
        return Reach(
            False,
            f"{url} answers {answer.status} without the api key, which does not go over plain http "
            "to another port than the engine's: write https:// or that port, or leave "
            "readiness.reachable_at out",
        )
    if answer.status in (401, 403):
        return Reach(False, f"{url} answers {answer.status}: it expects another api key")
    if answer.status != 200:
        return Reach(
            False,
            f"{url} answers {answer.status}: what is in front of the engine does not pass "
            "requests on to it",
        )
    found = _models(answer.body)
    if subject.served_name not in found:
        names = cut(escaped(mask(", ".join(found))), 200) or "no model"
        wrong = f"{url} serves {names}, not {subject.served_name}: another server answers there"
        return Reach(False, wrong)
    return Reach(True, f"{url} answers and serves {subject.served_name}")


def _get(url: str, key: str | None, answer: _Answer, mask: Callable[[str], str]) -> None:
    """Fill in the answer; its error becomes None when all is there."""
    headers = {"Accept-Encoding": "identity"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    with requests.Session() as session:
        # The controller's proxy settings and .netrc are not the clients'.
        session.trust_env = False
        try:
            # A redirect is an answer of its own: clients of an API do not follow it with a POST.
            with session.get(
                url, headers=headers, timeout=TIMEOUT_S, stream=True, allow_redirects=False
            ) as response:
                answer.status = response.status_code
                # As it came: what is compressed, unasked, may be of any size.
                answer.body = response.raw.read(LARGEST, decode_content=False)
        except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
            answer.error = _short(error, mask)
            return
    answer.error = None


def _models(body: bytes) -> list[str]:
    found = mappings(json_object(body).get("data"))
    return [str(model["id"]) for model in found if "id" in model]


def _short(error: Exception, mask: Callable[[str], str]) -> str:
    if isinstance(error, (requests.Timeout, urllib3.exceptions.TimeoutError)):
        return f"no answer within {TIMEOUT_S:g} s"
    cause: object = error.args[0] if error.args else error
    reason = getattr(cause, "reason", cause)
    return cut(escaped(mask(str(reason)).rpartition(": ")[2] or type(error).__name__), 150)
