"""Manners of all commands alike: names and texts of flags, JSON, colours, exit status, completion."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from functools import reduce
from operator import or_
from pathlib import Path

import pytest
import tyro

from echelon_jax.cli import main as cli
from echelon_jax.cli.commands import COMMANDS as ALL
from echelon_jax.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
ESCAPE = re.compile(r"\x1b\[")


EVERY = reduce(or_, (typing.Annotated[command.load(), tyro.conf.subcommand(command.name)] for command in ALL))


def commands(union: object = EVERY, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], type]]:
    """Every command that does something, with the words that call it."""
    for member in typing.get_args(union):
        kind, settings = typing.get_args(member)[0], member.__metadata__[0]
        inner = [f for f in dataclasses.fields(kind) if f.name == "command"]
        path = (*words, settings.name)
        if inner:
            nested = typing.get_type_hints(kind, include_extras=True)["command"]
            yield from commands(typing.get_args(nested)[0], path)
        else:
            yield path, kind


COMMANDS = {" ".join(words): kind for words, kind in commands()}


@pytest.fixture(scope="module")
def helps() -> dict[str, str]:
    """The help text of every command."""
    import contextlib
    import io

    texts = {}
    for words in COMMANDS:
        out = io.StringIO()
        with contextlib.redirect_stdout(out), pytest.raises(SystemExit) as exit_:
            main([*words.split(), "--help"])
        assert exit_.value.code in (0, None), words
        texts[words] = out.getvalue()
    return texts


def flags(text: str) -> dict[str, str]:
    """Flags of a help text with what it says of each; a flag stands at the left edge of its box, its text further right."""
    found: dict[str, str] = {}
    flag = None
    for line in text.splitlines():
        if match := re.match(r"│ (?:-\w, )?(--\w[\w-]*)(.*)│$", line):
            flag = match[1]
            found[flag] = match[2]
        elif flag is not None and re.match(r"│ {3,}\S.*│$", line):
            found[flag] += " " + line.strip("│")
        else:
            flag = None
    return {flag: " ".join(said.split()) for flag, said in found.items()}


def test_all_commands_are_walked(helps):
    assert {"train", "evaluate", "runs", "parity", "bench", "arena ladder", "arena match", "replay"} <= set(helps)


def test_every_flag_is_in_kebab_case_and_described(helps):
    for words, text in helps.items():
        for flag, said in flags(text).items():
            assert re.fullmatch(r"--[a-z0-9]+(-[a-z0-9]+)*", flag), f"{words} {flag}"
            assert len(said.split()) > 2 or flag == "--help", f"{words} {flag} has no text: {said!r}"


def test_every_command_says_in_its_first_line_what_it_does(helps):
    for words, kind in COMMANDS.items():
        first = (kind.__doc__ or "").split("\n")[0]
        assert re.match(r"[A-Z].{20,}", first), f"{words}: {first!r}"
        assert " ".join(first.split()[:4]) in " ".join(helps[words].replace("│", " ").split()), words


@pytest.mark.parametrize("name", ["seed", "threads", "json", "league", "out"])
def test_a_shared_flag_has_one_type(name):
    """A flag never means a number here and a path there."""
    hints = {}
    for words, kind in COMMANDS.items():
        if name in {f.name for f in dataclasses.fields(kind)}:
            hint = typing.get_type_hints(kind)[name]
            hints[words] = frozenset(typing.get_args(hint) or [hint]) - {type(None)}
    assert len(hints) > 1 and len(set(hints.values())) == 1, hints


def test_every_command_prints_json_if_asked(helps):
    for words, text in helps.items():
        said = " ".join(text.replace("│", " ").split())
        assert "--json, --no-json Print JSON instead of" in said, words


def test_a_help_text_that_is_piped_has_no_colours(helps):
    assert not any(ESCAPE.search(text) for text in helps.values())


def seen_on_a_terminal(arguments: list[str], environment: dict[str, str]) -> str:
    """What a command writes to a terminal."""
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "echelon_jax.cli.main", *arguments],
        stdout=theirs,
        stderr=theirs,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT), **environment},
    ) as process:
        os.close(theirs)
        data = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            data += part
        process.wait()
    os.close(ours)
    return data.decode(errors="replace")


def test_a_terminal_sees_colours_unless_no_color_is_set():
    assert ESCAPE.search(seen_on_a_terminal(["runs", "--help"], {}))
    assert not ESCAPE.search(seen_on_a_terminal(["runs", "--help"], {"NO_COLOR": "1"}))


def test_the_page_names_the_exit_statuses_that_there_are():
    listed = {int(status) for status in re.findall(r"(?m)^\| (\d+) \|", PAGE)}
    assert listed == {0, 1, 2, cli.INTERRUPTED, cli.NOBODY_READS}
    assert main(["runs", "no such folder"]) == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions_know_every_command(shell, capsys):
    with pytest.raises(SystemExit):
        main(["--tyro-print-completion", shell])
    script = capsys.readouterr().out
    assert all(words.split()[0] in script for words in COMMANDS)


def test_bash_accepts_its_completions(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["--tyro-print-completion", "bash"])
    (tmp_path / "echelon").write_text(capsys.readouterr().out)
    done = subprocess.run(
        ["bash", "-c", f"source '{tmp_path}/echelon' && complete -p echelon"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and "echelon" in done.stdout, done.stderr
