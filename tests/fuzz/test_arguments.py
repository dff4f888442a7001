"""Lists of arguments, generated from the parsers: a command runs, or refuses in one line.

Each list runs in a child process with a separate copy of some files (`worlds`).
"""

import argparse
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from numpy_attention import cli
from tests.fuzz import processes, worlds
from tests.fuzz.attack import attack, tally
from tests.fuzz.worlds import OPTIONS

pytestmark = processes.here
LONG = "n" * 300
WHOLE = [
    "-1", "0", "1", "2", "3", "1.5", "nan", "inf", "1e3", str(2**31), str(2**63 - 1), str(2**63), "99999999999999",
    "9" * 5000, "-" + "9" * 30, "x", "", " 3", "1_0", "٣", "0x10", "a\0b", "--", "True",
]
NUMBER = [*WHOLE, "-inf", "0.5", "1e308", "1e-320", "-0.0", "1,5", "1e400"]
PATHS = [
    "", ".", "/proc", "/proc/nope/x", "/dev/null", "/dev/null/x", "missing.npz", "missing/", LONG, LONG + ".png",
    "a\0b", "\udc80", "text.txt", "set.toml", "ほ.txt", "latin.txt", "empty.txt", "pic.png", "zip.npz", "softmax.py",
    "run", "run/checkpoint.npz", "run/log.jsonl", "folder", "fifo", "broken", "x.pgf", "x.svg", "x.pdf", ".png",
    "x.png/y", "-", "x\ny", "\u202ex", "~", "$HOME", "*", "smollm2", "minilm", "softmax", "linear", "new", "/dev/full",
]
TEXTS = [*PATHS, "The ", "ほ", "\ud800", "x" * 5000, "\x1b[31m", " ", "a\nb", "nan", "None", "'"]
STRAY = ["--", "-", "", "--out", "--nope", "--tok", "--help", "-h", "--version", "@text.txt", "train", "--no-recompute",
         "--=", "--out=", "\udc80", "-1", "---", "--steps=1", "--text"]
START = {"--as-in-the-lesson", "--out", "--config"}  # of a run
GOOD = {"gradcheck": "linear", "grade": "softmax.py", "fetch": "minilm", "embed": "text.txt"}


class Built(Exception):
    """Raised when the parser has been built."""


@cache
def parsers() -> dict[str, argparse.ArgumentParser]:
    """The parser of each command, as main builds it."""
    found: list[argparse.ArgumentParser] = []

    def parse_args(self: argparse.ArgumentParser, *_: Any) -> NoReturn:
        found.append(self)
        raise Built

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", parse_args)
        with pytest.raises(Built):
            cli.main([])
    (commands,) = [action for action in found[0]._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(commands.choices)


def values(action: argparse.Action) -> st.SearchStrategy[str]:
    """Good and odd values for an option or a positional argument."""
    kind: Callable[[str], Any] | str | None = action.type
    pool = {int: WHOLE, float: NUMBER, Path: PATHS}.get(kind, TEXTS)  # type: ignore[arg-type]
    return st.sampled_from([*(str(choice) for choice in action.choices or ()), *pool])


@st.composite
def arguments(draw: st.DrawFn) -> list[str]:
    """A command with small sizes, which some options with any values override, in any order."""
    command = draw(st.sampled_from(sorted(parsers())))
    actions = [one for one in parsers()[command]._actions if not isinstance(one, argparse._HelpAction)]
    places = [one for one in actions if not one.option_strings]
    options = [one for one in actions if one.option_strings]
    argv = []
    for place in places:  # mostly a good value, since it is tested first
        how = draw(st.sampled_from(["good"] * 3 + ["odd", "none"]))
        if how == "odd" or not options:
            argv.append(draw(values(place)))
        elif how == "good" or place.nargs is None:
            argv.append(GOOD.get(command, "run"))
    most = draw(st.sampled_from([1, 1, 1, 3])) if options else 0
    for action in draw(st.lists(st.sampled_from(options or places), max_size=most)):
        name = draw(st.sampled_from(list(action.option_strings)))
        takes_one = not isinstance(action, (argparse.BooleanOptionalAction, argparse._StoreTrueAction))
        if draw(st.integers(0, 9)) == 0:
            takes_one = not takes_one
        joined = takes_one and draw(st.booleans())
        value = [draw(values(action))] if takes_one else []
        argv += [f"{name}={value[0]}"] if joined else [name, *value]
    if draw(st.integers(0, 5)) == 0:
        argv.insert(draw(st.integers(0, len(argv))), draw(st.sampled_from(STRAY)))
    run = OPTIONS[2:] if any(one.startswith("--task") for one in argv) else OPTIONS  # other tasks have no text
    small = {"train": run, "sample": ["--tokens", "3"], "chat": ["--tokens", "3"], "embed": ["--query", "x"]}
    return [command, *small.get(command, []), *argv]


@attack(count=20, dear=True)
@given(arguments())
@example(["gradcheck", "nope"])
@example(["gradcheck", "linear", "--seed", "-1"])
@example(["grade", "softmax.py", "--time-limit=--"])
@example(["train", *OPTIONS, "--batch", str(2**63 - 1)])
@example(["train", *OPTIONS, "--seed", "9" * 5000])
@example(["train", *OPTIONS, "--learning-rate", "1e308"])
@example(["train", *OPTIONS, "--out", "a\0b"])
@example(["train", *OPTIONS, "--out", "\udc80"])
@example(["train", *OPTIONS, "--out", LONG])
@example(["train", *OPTIONS, "--config", "fifo"])
@example(["train", "--resume", LONG])
@example(["train", "--resume", "run", "--as-in-the-lesson"])
@example(["sample", "run", "--tokens", "99999999999999"])
@example(["sample", "run", "--tokens", str(2**63)])
@example(["sample", "run", "--tokens", "3", "--temperature", "1e-320"])
@example(["chat", "\x1b[31m"])
@example(["attend", "run", "--text", "The", "--out", "x.pgf"])
@example(["attend", "run", "--text", "The", "--out", LONG + ".png"])
@example(["attend"])
@example(["fetch", "x" * 5000])
@example(["grade", "x" * 5000])
def test_a_command_runs_or_refuses_in_one_line(argv: list[str]) -> None:
    with worlds.copy_of_the_world() as top:
        outcome = worlds.tried(argv, top)
    assert outcome != "right" or "--resume" not in argv or not START & {*argv}, "what begins a run is ignored"
    tally(f"arguments: {argv[0]}", outcome)
