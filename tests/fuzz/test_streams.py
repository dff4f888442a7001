"""Every command with standard streams that are closed, full, in another encoding, or without a reader."""

import dataclasses
import functools
import os
import shutil
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from numpy_attention.runs import checkpoint
from tests.fuzz import processes
from tests.fuzz.attack import attack, tally
from tests.fuzz.directories import RUN, STEPS
from tests.fuzz.inside import standard_streams
from tests.fuzz.processes import Child, command, folder, judge
from tests.pretrained import tiny

pytestmark = processes.here
EXERCISE = Path(__file__).parents[2] / "tutorials" / "exercises" / "softmax.py"
TEXT = "für “uns” – ein ☃ und ein 😀 \n" * 20
SAID = {"nothing": b"", "a word": b"the\n/exit\n", "no text": b"\xff\xfe\n", "much": b"the " * 10_000 + b"\n"}
SAID |= {"an endless line": b"the " * 600_000, "no mark": b"t\0h\0e\0\n\0"}
COMMANDS: dict[str, list[Any]] = {
    "train": ["train", "--out", "run", *RUN],
    "sample": ["sample", "done", "--tokens=20", "--prompt=☃"],
    "attend": ["attend", "done", "--text=ein ☃", "--out=picture.png"],
    "gradcheck": ["gradcheck", "softmax", "linear"],
    "hint": ["grade", EXERCISE, "--hint=1"],
    "embed": ["embed", "bert", "words.txt", "--query=rain"],
    "chat": ["chat", "llama", "--tokens=3"],
    "help": ["train", "--help"],
    "refusal": ["sample", "nowhere ☃"],
}
SPEAKS = ("chat", "embed", "help")  # on the error stream too: notices, or help that would otherwise be lost


@dataclasses.dataclass(frozen=True)
class Streams:
    """The standard streams of a command; a reader takes `hear` bytes and then closes its end."""

    stdin: str = "nothing"  # of SAID, or "closed"
    out: str = "open"  # or "closed", "full", "left"
    err: str = "open"  # or "closed", "full"
    hear: int = 0
    encoding: str = "utf-8"

    def ends(self) -> None:
        """Set up the streams in the child, which already has pipes for output and error."""
        if self.stdin != "closed":
            there = os.memfd_create("input")  # a pipe holds only 64 kB
            os.write(there, SAID[self.stdin])
            os.lseek(there, 0, os.SEEK_SET)
            os.dup2(there, 0)
            os.close(there)
        for number, state in ((1, self.out), (2, self.err)):
            if state == "full":
                os.dup2(os.open("/dev/full", os.O_WRONLY), number)
        closed = [number for number, state in enumerate((self.stdin, self.out, self.err)) if state == "closed"]
        for number in closed:
            os.close(number)
        standard_streams(self.encoding, closed)


@functools.cache
def materials() -> Path:
    """A finished run, a text and two models from other programs."""
    top = folder()
    (top / "text.txt").write_text(TEXT, encoding="utf-8")
    (top / "words.txt").write_text("the rain\nbread ☃\n\nbad bread\n", encoding="utf-8")
    ended = command(["train", "--out", "done", *RUN], top)
    assert ended.code == 0, ended.said()
    tiny.write(top, "bert")
    tiny.write(top, "llama")
    return top


STREAMS = st.builds(
    Streams, stdin=st.sampled_from(["closed", *SAID]), out=st.sampled_from(["open", "closed", "full", "left"]),
    err=st.sampled_from(["open", "closed", "full"]), hear=st.one_of(st.integers(0, 10), st.integers(0, 1500)),
    encoding=st.sampled_from(["utf-8", "ascii", "latin-1", "cp1252"]),
)  # fmt: skip


@attack(count=10, dear=True)
@given(name=st.sampled_from(sorted(COMMANDS)), streams=STREAMS)
@example(name="train", streams=Streams(out="left", hear=10))
@example(name="train", streams=Streams(out="full"))
@example(name="train", streams=Streams(out="closed"))
@example(name="train", streams=Streams(err="closed"))
@example(name="train", streams=Streams(encoding="ascii"))
@example(name="sample", streams=Streams(out="full"))
@example(name="sample", streams=Streams(out="closed"))
@example(name="sample", streams=Streams(out="left", hear=1))
@example(name="sample", streams=Streams(encoding="latin-1"))
@example(name="chat", streams=Streams(stdin="an endless line"))
@example(name="chat", streams=Streams(stdin="no mark"))
@example(name="refusal", streams=Streams(err="closed"))
@example(name="help", streams=Streams(out="full"))
def test_no_state_of_the_streams_causes_a_traceback(name: str, streams: Streams) -> None:
    top = folder()
    try:
        shutil.copytree(materials(), top, dirs_exist_ok=True)
        child = Child(COMMANDS[name], top, ends=streams.ends)
        outcome = child.outcome(hear=streams.hear if streams.out == "left" else None)
        product = streams.out == "open" or name == "train"  # the command can do its work
        allowed = {2} if name == "refusal" else {0} if product and name != "chat" else {0, 2}
        tally(f"streams: {name}", judge(outcome, allowed, streams.err == "open", name in SPEAKS))
        assert b"Exception ignored" not in outcome.err
        if name == "train":
            assert checkpoint.load_arrays(top / "run" / checkpoint.NAME)[1]["step"] == STEPS
            assert (top / "run" / "loss.png").exists()
    finally:
        shutil.rmtree(top)
