from roles.host.managed import ManagedDirectory, ManagedFile, change, changes

FILE = ManagedFile(
    "/etc/x/engine.yaml", b'port: 1\napi-key: "planted-key"\n', "0640", group="sglang"
)
GOOD = {
    "kind": "file",
    "sha256": FILE.sha256,
    "mode": "0640",
    "owner": "root",
    "group": "sglang",
}


def test_a_file_that_is_right_is_no_change() -> None:
    assert change(FILE, GOOD) is None


def test_a_new_file_shows_its_content_and_no_secret() -> None:
    found = change(FILE, {"kind": "absent"})
    assert found is not None
    assert found.why == "new"
    assert "+port: 1" in found.diff
    assert "planted-key" not in "\n".join(found.diff)


def test_a_changed_secret_is_a_change_that_is_not_shown() -> None:
    found = change(FILE, {**GOOD, "sha256": "0", "text": "port: 1\napi-key: ***\n"})
    assert found is not None
    assert found.diff == ("(in /etc/x/engine.yaml only a secret's value differs: it is not shown)",)


def test_rights_alone_are_a_change_without_a_diff() -> None:
    found = change(FILE, {**GOOD, "mode": "0644", "owner": "bob"})
    assert found is not None
    assert found.why == "mode 0644 -> 0640, owner bob -> root"
    assert found.diff == ()


def test_a_folder_where_a_file_should_be() -> None:
    found = change(FILE, {"kind": "directory", "mode": "0755", "owner": "root", "group": "root"})
    assert found is not None
    assert found.why == "is a directory"


def test_what_was_not_asked_for_counts_as_absent() -> None:
    assert [one.why for one in changes([ManagedDirectory("/etc/x"), FILE], {})] == ["new", "new"]


def test_content_is_not_in_the_repr() -> None:
    assert "planted-key" not in repr(FILE)


def test_a_folder_that_was_moved_elsewhere_stays_a_link() -> None:
    link = {"kind": "link", "target": "/data/x", "to_directory": True, "mode": "0777"}
    assert change(ManagedDirectory("/opt/x"), link) is None
    dangling = change(ManagedDirectory("/opt/x"), {**link, "to_directory": False})
    assert dangling is not None
    assert dangling.why == "is a link"


def test_what_cannot_be_looked_at_is_not_written_over() -> None:
    found = change(FILE, {"kind": "unknown", "reason": "Permission denied"})
    assert found is not None
    assert found.unreadable


def test_a_diff_has_a_length() -> None:
    """Half a megabyte of empty lines were half a million lines on the screen."""
    found = change(FILE, {**GOOD, "sha256": "0", "text": "\n" * 500_000})
    assert found is not None and len(found.diff) == 1001
    assert "more lines" in found.diff[-1]
