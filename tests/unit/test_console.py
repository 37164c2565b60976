import json

from roles.console import judge


def plan(*changes: tuple[str, list[str]]) -> bytes:
    return json.dumps(
        {"plan": [{"name": name, "hosts_with_change": hosts} for name, hosts in changes]}
    ).encode()


def test_nothing_to_do() -> None:
    assert judge(0, plan(("a", []))) == (0, ["sglang-plan: nothing to do"])


def test_pending_changes_are_listed() -> None:
    status, lines = judge(0, plan(("stage", ["h2", "h1"]), ("user", [])))
    assert status == 2
    assert lines[0] == "stage: h1, h2"


def test_no_host_at_all_is_an_error() -> None:
    assert judge(0, plan())[0] == 1


def test_a_failed_host_is_an_error_even_where_the_others_have_nothing_to_do() -> None:
    assert judge(1, plan())[0] == 1


def test_no_plan_is_an_error() -> None:
    for output in (b"", b"null", b"[]", b"{}"):
        assert judge(0, output)[0] == 1
