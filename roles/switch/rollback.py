"""Going back on demand: a release from before is live again, proven as any other."""

from __future__ import annotations

from roles.remote import program
from roles.remote.link import Link
from roles.remote.operation import Commands, operation, planned, read, show, will_fail
from roles.remote.over_link import over_link
from roles.remote.program import PYTHON
from roles.remote.snapshot import JSON, forget, releases
from roles.switch.operations import START_S, follow_switch, new_ticket, plan_lines, way_back


def target_of(found: JSON) -> str | None:
    """The known-good release, or the previous one where that is live; None without one. As
    sglangctl/switch/on_demand.py decides it. Pure."""
    staged = found.get("staged") or []
    names = [found.get("known_good"), found.get("previous")]
    return next((one for one in names if one in staged and one != found.get("current")), None)


@operation(is_idempotent=False)
def rolled_back(engine: str, request: JSON, sudo: bool = False) -> Commands:
    """
    Put the known-good release of an engine live, or the previous one where that is live now.

    The next deploy puts the inventory's release live again.

    + engine: its name
    + request: what the probe is asked for
    + sudo: whether commands need it on this host
    """
    facts = read(request)
    target = target_of(releases(facts, engine))
    if target is None:
        yield will_fail(f"{engine} has no release before the live one on this host")
        return
    show(
        [
            f"rollback of {engine} to release {target[:12]}",
            *plan_lines(facts, engine),
            *planned(way_back(facts, engine, target)),
        ]
    )

    def run(link: Link) -> None:
        ticket = new_ticket()
        argv = ["rollback", engine, target, f"--detach={ticket}"]
        answer = link.run(*PYTHON, program.LINK, *argv, wait_s=START_S)
        answer.needed("the rollback could not be started")
        follow_switch(link, engine, ticket, program.LINK)

    yield over_link(run, sudo, "interrupted: the rollback continues on the host")
    forget()
