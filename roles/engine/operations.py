"""Operations of one engine that disturb nothing: its user, and its staged release."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

from pyinfra.api import StringCommand
from pyinfra.api.command import QuoteString
from pyinfra.context import host, state

from roles.engine.desired import DesiredEngine, changed_against_live
from roles.host.managed import rights_only
from roles.host.operations import describe
from roles.remote import program
from roles.remote.limits import FACT_S
from roles.remote.operation import Commands, operation, read, show, will_fail
from roles.remote.snapshot import JSON, Input, releases
from sglangctl.state.paths import OWN_USER

USERS = "/var/lib/sglangctl/.users"


@operation()
def service_user(user: str, home: str, request: JSON) -> Commands:
    """
    Make the system user that an engine runs as; one that is there already is left as it is.

    + user: its name
    + home: its home folder (caches; not made here)
    + request: what the probe is asked for
    """
    facts = read(request)
    found = facts["users"].get(user)
    if found is not None and found.get("group") != user:
        sentence = (
            f"the user {user} has the group {found.get('group')}, and an engine's user needs one of "
            f"its own name: choose another `user`, or: groupadd {user} && usermod -g {user} {user}"
        )
        yield will_fail(sentence)
        return
    if found is not None:
        host.noop(f"user {user} is there")
        return
    show([f"user {user}: new"])
    record = f"{USERS}/{user}"
    yield StringCommand(
        "getent passwd",
        QuoteString(user),
        ">/dev/null ||",
        "{ useradd --system --user-group --no-create-home --shell /usr/sbin/nologin",
        "--comment",
        QuoteString(OWN_USER),
        "--home-dir",
        QuoteString(home),
        "--",
        QuoteString(user),
        # remove.py deletes whom it finds there, and nobody else.
        "&& mkdir -p --",
        QuoteString(USERS),
        "&& getent passwd",
        QuoteString(user),
        ">",
        QuoteString(record),
        "; }",
    )


@operation()
def staged_release(
    engine: DesiredEngine, side: Callable[[JSON], DesiredEngine], request: JSON
) -> Commands:
    """
    Write the engine's release beside the live one, checked by systemd-analyze.

    What differs from the live release is shown; a release that is live or staged is not written
    again.

    + engine: the engine
    + side: from the probe's document to the engine, or to its fallback where that serves
    + request: what the probe is asked for
    """
    facts = read(request)
    engine = side(facts)
    digest = engine.release.digest
    found = changed_against_live(engine, facts)
    live = is_live(engine, facts)
    if not needs_staging(engine, facts):
        host.noop(f"release {digest[:12]} is staged")
        return
    edited = live and bool(found)
    what = "to be staged"
    if live:
        what = f"{'was edited' if edited else 'is damaged'}, to be written again"
    show([f"release {digest[:12]}: {what}", *describe(found, bool(state.config.DIFF))])
    yield stage(engine)


def is_live(engine: DesiredEngine, facts: JSON) -> bool:
    return bool(releases(facts, engine.name).get("current") == engine.release.digest)


def needs_staging(engine: DesiredEngine, facts: JSON) -> bool:
    """Whether the engine's release is written. Pure.

    Not where only rights differ in the live one: these are changed back in place. Written anew, it
    would be newer than the process that has read it.
    """
    found = changed_against_live(engine, facts) if is_live(engine, facts) else []
    if found:
        return not all(map(rights_only, found))
    return engine.release.digest not in (releases(facts, engine.name).get("staged") or [])


def stage(engine: DesiredEngine) -> StringCommand:
    """Has the host write the engine's release."""
    document = {
        "digest": engine.release.digest,
        "user": engine.spec.user,
        "files": {
            name: base64.b64encode(content).decode()
            for name, content in engine.release.files.items()
        },
    }
    return StringCommand(
        *program.argv("stage", engine.name),
        _stdin=Input([json.dumps(document)]),
        _timeout=FACT_S,
    )
