"""Which release a rollback on demand goes to."""

from __future__ import annotations

from sglangctl.state import release
from sglangctl.state.paths import Paths
from sglangctl.switch.transaction import Wanted
from sglangctl.util.errors import Failed


def wanted(name: str, asked: str | None, paths: Paths) -> Wanted:
    """The switch back to release `asked` (the first digits are enough); without one to the known-good
    release, or to the previous one where the known-good one is live. Failed where there is none.

    Its configuration goes with it where the last switch recorded it; otherwise that of now stays.
    """
    current = release.link_target(name, "current", paths)
    staged = release.staged(name, paths)
    if asked is None:
        links = [release.link_target(name, link, paths) for link in ("known-good", "previous")]
        found = [one for one in links if one in staged and one != current][:1]
    else:
        found = [one for one in staged if one.startswith(asked)]
    if len(found) != 1:
        what = "no release before the live one" if asked is None else f"no release {asked}"
        if len(found) > 1:
            what = f"{len(found)} releases that begin with {asked}"
        shown = ", ".join(one[:12] for one in staged if one != current) or "none"
        raise Failed(f"nothing was changed. {name} has {what} on this host (others: {shown})")
    to = str(found[0])
    if to == current:
        raise Failed(f"nothing was changed. Release {to[:12]} of {name} is live")
    state = release.read_state(name, paths)
    before = state.config_before if state is not None and state.came_from == to else None
    return Wanted(name, to, reason=f"rollback from {(current or 'none')[:12]}", config=before)
