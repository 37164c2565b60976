"""What only the host can tell: root, systemd, and whether anything was deployed there."""

from roles.stages.fitness import why_unfit


def test_everything_that_only_the_host_can_tell_at_once() -> None:
    fine = {"uid": 0, "systemd": "252", "program": "0123456789abcdef"}
    assert why_unfit(fine, "verify") == []
    assert why_unfit({**fine, "program": None}, "sglang") == []
    user, systemd, program = why_unfit({"uid": 1000, "reasons": {"systemd": "no"}}, "verify")
    assert user.startswith("verify needs root on the host: set `ssh: {user: root}`")
    assert systemd == "verify needs a host that is run by systemd: no"
    assert program.startswith("nothing was deployed to this host yet")
