"""What is said every ten seconds while a long command runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import gevent
import pytest
from pyinfra.api import StringCommand

from roles.remote import steps

if TYPE_CHECKING:
    from pyinfra.api import Host


class Remote:
    """A host whose long command ends once enough was said."""

    def __init__(self, said: list[str], answer: Any) -> None:
        self.said, self.answer, self.sudo = said, answer, []

    def run_shell_command(self, command: StringCommand, **options: Any) -> tuple[bool, Any]:
        if not command.get_raw_value().startswith("cat"):
            with gevent.Timeout(5):
                while len(self.said) < 3:
                    gevent.sleep(0)
            return True, SimpleNamespace(stdout_lines=["end"])
        self.sudo.append(options["_sudo"])
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("answer", "end"),
    [
        ((True, SimpleNamespace(stdout_lines=["2.1 GiB, 85 MiB/s"])), ", 2.1 GiB, 85 MiB/s"),
        ((False, SimpleNamespace(stdout_lines=[])), " s"),
        (OSError("the link is gone"), " s"),
    ],
)
def test_they_say_how_much_has_come(answer: Any, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(steps, "say", lambda host, text, **options: said.append(text))
    monkeypatch.setattr(steps, "HEARTBEAT_S", 0.0)
    remote = Remote(said, answer)
    lines = steps.run_step(
        cast("Host", remote),
        "installing",
        StringCommand("fill"),
        sudo=True,
        limit_s=9,
        then="deploy again",
        more=["cat", "--", "/run/x.progress"],
    )
    assert lines == ["end"] and said[1].startswith("installing: ") and said[1].endswith(end)
    assert set(remote.sudo) == {True}
