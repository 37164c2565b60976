"""Quoting against the readers: systemd's own rules, written again here, sh, and PyYAML.

tests/container/test_engine_units.py asks the real systemd.
"""

from __future__ import annotations

import json
import re
import string
import subprocess

import pytest
import yaml
from hypothesis import assume, example, given
from hypothesis import strategies as st

from roles.inventory.quoting import (
    config_value,
    env_value,
    exec_line,
    exec_word,
    is_writable,
    unit_word,
)
from sglangctl.masking.masker import read_engine_yaml, read_env

NASTY = st.text(
    st.sampled_from("\\\"'$%`;#{}[]()<>|&*?~!@:=,- \t\n\r\x01\x1b\x7f\x85\u2028é漢😀ab01nx{U"),
    max_size=12,
)
TEXT = (st.text(max_size=20) | NASTY).filter(is_writable)
LINE = TEXT.filter(lambda text: not re.search("[\x00-\x1f\x7f-\x9f]", text))
ESCAPES = dict(zip("abfnrtv\\\"'s", "\a\b\f\n\r\t\v\\\"' ", strict=True))


def unquoted_words(line: str, c_escapes: bool) -> list[str]:
    """systemd's extract_first_word() with UNQUOTE, and with or without CUNESCAPE."""
    words: list[str] = []
    at = 0
    while True:
        while at < len(line) and line[at] in " \t\n\r":
            at += 1
        if at == len(line):
            return words
        # Where a command line ends and the next begins; within quotes it is a character.
        assert not re.match(r";(?:[ \t\n\r]|$)", line[at:]), "a separator of commands"
        word, quote = "", ""
        while at < len(line) and (quote or line[at] not in " \t\n\r"):
            letter = line[at]
            at += 1
            if letter == "\\":
                text, at = escape(line, at) if c_escapes else (line[at], at + 1)
                word += text
            elif quote:
                quote, word = ("", word) if letter == quote else (quote, word + letter)
            elif letter in "\"'":
                quote = letter
            else:
                word += letter
        assert not quote, "an open quote"
        words.append(word)


def escape(line: str, at: int) -> tuple[str, int]:
    """systemd's cunescape_one(): the character, and where to go on."""
    letter = line[at]
    if letter in ESCAPES:
        return ESCAPES[letter], at + 1
    digits = {"x": 2, "u": 4, "U": 8}[letter]
    return chr(int(line[at + 1 : at + 1 + digits], 16)), at + 1 + digits


def without_specifiers(word: str) -> str:
    assert re.fullmatch(r"(?:[^%]|%%)*", word, re.DOTALL), "a specifier"
    return word.replace("%%", "%")


def without_variables(word: str) -> str:
    assert re.fullmatch(r"(?:[^$]|\$\$)*", word, re.DOTALL), "a variable"
    return word.replace("$$", "$")


def executed(line: str) -> list[str]:
    """What a program gets from ExecStart=`line`."""
    assert line == line.strip(), "systemd strips the line"
    assert "\n" not in line
    assert not line.endswith("\\"), "a continuation"
    return [
        without_variables(without_specifiers(word)) for word in unquoted_words(line, c_escapes=True)
    ]


@given(st.lists(TEXT, max_size=6))
@example(["$HOME ${HOME} $$", "%h %% %n", ";", "", " ", "a\\", '"', "'", "\\x41", "#", "-@+!"])
@example(["--x=--y", "a\nb", "\x01", "é"])
@example([" ; ", "\u2028;\u2028", "a; b", ";;"])
def test_arguments_reach_the_program_as_they_are(arguments: list[str]) -> None:
    assert executed(exec_line(arguments)) == arguments


@given(st.lists(LINE.filter(bool), max_size=6))
@example(["/models/a b", "/models/%h", "/models/$x", '/m/"', "/m/\\", "/m/'"])
def test_words_of_other_settings_come_back(words: list[str]) -> None:
    line = " ".join(map(unit_word, words))
    assert "\n" not in line
    assert [without_specifiers(word) for word in unquoted_words(line, c_escapes=False)] == words


def parsed_env_file(text: str) -> dict[str, str]:
    """systemd's parse_env_file() for lines NAME="...", which are the only ones that we write."""
    values: dict[str, str] = {}
    for line in text.split("\n"):
        name, _, rest = line.partition("=")
        assert rest[0] == '"'
        value, at = "", 1
        while rest[at] != '"':
            if rest[at] == "\\":
                at += 1
                value += rest[at] if rest[at] in '"\\`$' else "\\" + rest[at]
            else:
                value += rest[at]
            at += 1
        assert at == len(rest) - 1, "something after the value"
        values[name] = value
    return values


ENV_TEXT = TEXT.filter(lambda text: not re.search("[\x00-\x08\x0a-\x1f\x7f-\x9f]", text))


@given(ENV_TEXT)
@example('a"b\\c`d$e')
@example("\\")
@example("$(id)")
def test_environment_values_come_back(value: str) -> None:
    assert parsed_env_file(f"X={env_value(value)}") == {"X": value}


@given(st.lists(ENV_TEXT, min_size=1, max_size=20))
@example(["$(id)", "`id`", "\\$x", '"', "\\", "a\tb", "!x", "\u2028"])
def test_sh_and_our_own_reader_read_the_same(
    tmp_path_factory: pytest.TempPathFactory, values
) -> None:
    path = tmp_path_factory.mktemp("env") / "engine.env"
    names = [f"V{index}" for index in range(len(values))]
    lines = [f"{name}={env_value(value)}\n" for name, value in zip(names, values, strict=True)]
    path.write_text("".join(lines), encoding="utf-8")
    script = (
        '. "$1"; for n in ' + " ".join(names) + '; do eval "printf \'%s\\0\' \\"\\$$n\\""; done'
    )
    shell = subprocess.run(["sh", "-c", script, "sh", str(path)], capture_output=True, check=True)
    assert shell.stdout.decode().split("\0")[:-1] == values
    assert read_env(path) == dict(zip(names, values, strict=True))


@pytest.mark.parametrize("text", ["a\nb", "a\x00", "\x1b[31m", "\x85"])
def test_what_has_no_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="control"):
        unit_word(text)
    with pytest.raises(ValueError, match="control"):
        env_value(text)


@pytest.mark.parametrize("text", ["a\x00", "\ud800", "\uffff", "\U0001fffe", "\ufdd0"])
def test_what_systemd_cannot_pass_on_is_refused(text: str) -> None:
    for quote in (exec_word, unit_word, env_value):
        with pytest.raises(ValueError, match="cannot"):
            quote(text)


NUMBER = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
VALUE = TEXT | NUMBER | st.booleans() | st.lists(TEXT | NUMBER, max_size=4)


@given(VALUE)
@example(1e-05)
@example(1e22)
@example(-2.5e-300)
@example("no")
@example("\u2028 \x85 \ufeff 😀")
@example("1e-05")
def test_config_values_are_the_same_in_yaml_and_json(value) -> None:
    text = config_value(value)
    assert "\n" not in text
    assert yaml.safe_load(f"key: {text}\n") == {"key": value}
    assert json.loads(text) == value
    assert type(yaml.safe_load(text)) is type(value)


@given(st.dictionaries(st.text(string.ascii_lowercase, min_size=1, max_size=5), VALUE, max_size=5))
def test_our_own_reader_reads_the_config_file(
    tmp_path_factory: pytest.TempPathFactory, values
) -> None:
    assume(values)
    path = tmp_path_factory.mktemp("config") / "engine.yaml"
    lines = [f"{key}: {config_value(value)}\n" for key, value in values.items()]
    path.write_text("# comment\n" + "".join(lines), encoding="utf-8")
    assert read_engine_yaml(path) == values
