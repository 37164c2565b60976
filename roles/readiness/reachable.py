"""Can clients reach the service? Asked from the controller, apart from how the engine is."""

from __future__ import annotations

import time
from dataclasses import dataclass

import requests

from roles.readiness.subject import Subject
from roles.spec.secret import SecretError
from sglangctl.terminal import cut, harmless

TIMEOUT_S = 10.0
TRIES = 3
PAUSE_S = 2.0


@dataclass(frozen=True)
class Reach:
    """`ok` (None: it could not be asked) and a sentence for the operator."""

    ok: bool | None
    url: str
    sentence: str


def reach(subject: Subject) -> Reach | None:
    """GET /v1/models where the inventory says clients go; None where it says nothing."""
    if subject.reachable_at is None:
        return None
    url = subject.reachable_at.rstrip("/") + "/v1/models"
    try:
        key = subject.api_key.reveal() if subject.api_key else None
    except SecretError as error:
        return Reach(None, url, f"{url} cannot be asked without the api key: {error}")
    for attempt in range(TRIES):
        if attempt:
            time.sleep(PAUSE_S)
        result = _ask(url, subject, key)
        if result.ok:
            break
    return result


def _ask(url: str, subject: Subject, key: str | None) -> Reach:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with requests.Session() as session:
        # The controller's proxy settings and .netrc are not the clients'.
        session.trust_env = False
        try:
            response = session.get(url, headers=headers, timeout=TIMEOUT_S)
        except requests.RequestException as error:
            return Reach(
                False,
                url,
                f"{url} cannot be reached from here ({_short(error)}): look at `listen`, the "
                "firewall, the name and the proxy in front of it",
            )
    if response.status_code in (401, 403):
        return Reach(False, url, f"{url} answers {response.status_code}: it wants another api key")
    if response.status_code != 200:
        return Reach(
            False,
            url,
            f"{url} answers {response.status_code}: what is in front of the engine does not pass "
            "requests on to it",
        )
    found = _models(response)
    if subject.served_name not in found:
        names = cut(harmless(", ".join(found)), 200) or "no model"
        return Reach(
            False,
            url,
            f"{url} serves {names}, not {subject.served_name}: another server answers there",
        )
    return Reach(True, url, f"{url} answers and serves {subject.served_name}")


def _models(response: requests.Response) -> list[str]:
    try:
        document = response.json()
    except ValueError:
        return []
    data = document.get("data") if isinstance(document, dict) else None
    return [
        str(model["id"])
        for model in (data if isinstance(data, list) else [])
        if isinstance(model, dict) and "id" in model
    ]


def _short(error: Exception) -> str:
    if isinstance(error, requests.Timeout):
        return f"no answer within {TIMEOUT_S:g} s"
    cause: object = error.args[0] if error.args else error
    reason = getattr(cause, "reason", cause)
    return cut(harmless(str(reason).rpartition(": ")[2] or type(error).__name__), 150)
