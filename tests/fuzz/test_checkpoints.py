"""Hostile checkpoints: each is refused in one line or loaded correctly, in seconds and with little memory."""

import functools
import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from numpy_attention.runs import checkpoint
from numpy_attention.runs.trainer import Trainer
from tests.fuzz import processes
from tests.fuzz.attack import attack, tally
from tests.fuzz.directories import RUN, Directory
from tests.fuzz.processes import Child, command, judge
from tests.runs import corruptions

pytestmark = processes.here
LOOKS = {
    "sample": ["sample", "run", "--tokens=2", "--prompt=one"],
    "attend": ["attend", "run", "--text=one"],
    "resume": ["train", "--resume", "run"],
}
LOOK = st.sampled_from(sorted(LOOKS))
ODD = (
    *corruptions.WRONG_VALUES, -(2**31), 2**62, 2**63 - 1, 10**12, 10**6, -1.0, 1e-320, "a\0b", "\ud800", "/dev/zero",
    "/nowhere/at/all", "n" * 300, "n" * 5000, [[]] * 3, {"": None},
)  # fmt: skip
FLOATS = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf, "negative": -1.0, "huge": 3e38, "zero": 0.0}
WHOLE = {"nan": 2**62, "inf": 2**40, "-inf": -(2**40), "negative": -1, "huge": 2**63 - 1, "zero": 0}


@functools.cache
def honest() -> tuple[bytes, dict[str, bytes]]:
    """A checkpoint in the middle of a run, and the output of each command for it."""
    place = Directory()
    ended = command(["train", "--out", "run", *RUN], place.top, stops_soon)
    assert ended.code == 143, ended.said()
    data = (place.run / checkpoint.NAME).read_bytes()
    printed = {name: command(arguments, place.top, stops_soon) for name, arguments in LOOKS.items()}
    assert [one.code for one in printed.values()] == [0, 0, 143], printed
    place.leave()
    return data, {name: one.out for name, one in printed.items()}


def stops_soon() -> None:
    """Stop a run after its next step, since the cost of training does not depend on the file."""
    step = Trainer.one_step

    def last(self: Trainer) -> Any:
        self.signals.name = "SIGTERM"
        return step(self)

    Trainer.one_step = last  # type: ignore[method-assign]


def looked_at(kind: str, data: bytes, look: str, right: Callable[[bytes], bool] = lambda out: True) -> str:
    """Run a command on a checkpoint of these bytes; return the outcome in a word."""
    place = Directory()
    try:
        place.run.mkdir()
        (place.run / checkpoint.NAME).write_bytes(data)
        place.children.append(child := Child(LOOKS[look], place.top, stops_soon))
        outcome = child.outcome()
        ended = judge(outcome, {0, 1, 2, 143} if look == "resume" else {0, 2})  # 1: the numbers are too large to resume
        place.assert_all_is_well_outside()
        assert outcome.code == 2 or right(outcome.out), f"neither refused nor right: {outcome.out[:300]!r}"
    finally:
        place.leave()
    tally(f"checkpoints: {kind}", ended)
    return ended


@attack(count=12)
@given(kind=st.sampled_from(corruptions.OF_A_CHECKPOINT), seed=st.integers(0, 2**32), look=LOOK)
def test_a_spoiled_checkpoint_is_refused_or_right(kind: Callable[..., bytes], seed: int, look: str) -> None:
    data, printed = honest()
    other = kind is corruptions.wrong_description  # another value, for example another seed, may be valid

    def right(out: bytes) -> bool:
        return other or look == "resume" or out == printed[look]

    looked_at(kind.__name__, kind(data, np.random.default_rng(seed)), look, right)


def forged(place: list[str], value: object) -> bytes:
    """The checkpoint with another value in its description, and valid checksums."""
    members = dict(corruptions.members_of(honest()[0]))
    meta = json.loads(corruptions.array_of(members["meta.npy"]).tobytes())
    inner = meta
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    members["meta.npy"] = corruptions.description(meta)
    return corruptions.rebuilt(list(members.items()), True)


@functools.cache
def places() -> list[list[str]]:
    """All paths to values in the description."""
    meta = json.loads(corruptions.array_of(dict(corruptions.members_of(honest()[0]))["meta.npy"]).tobytes())

    own = [[key] for key in meta if key not in ("format", "version", "checksums")]
    return own + [[key, inner] for [key] in own if isinstance(meta[key], dict) for inner in meta[key]]


@attack(count=20)
@given(place=st.deferred(lambda: st.sampled_from(places())), value=st.sampled_from(ODD), look=LOOK)
@example(place=["config", "batch"], value=2**62, look="resume")
@example(place=["config", "batch"], value=10**9, look="resume")
@example(place=["config", "text"], value="a\0b", look="resume")
@example(place=["config", "text"], value="\ud800", look="resume")
@example(place=["config", "from_"], value="a\0b", look="sample")
@example(place=["config", "workers"], value=10**6, look="resume")
@example(place=["seconds"], value=2**63, look="resume")
@example(place=["config", "steps"], value=1, look="resume")
@example(place=["config", "weight_decay"], value=1e308, look="resume")
@example(place=["config", "learning_rate"], value=1e308, look="resume")
@example(place=["best"], value="n" * 300, look="resume")
@example(place=["model", "activation"], value="n" * 5000, look="sample")
def test_an_odd_value_in_a_description_is_refused_or_right(place: list[str], value: object, look: str) -> None:
    looked_at(f"odd {place[0]}", forged(place, value), look)


@functools.cache
def names() -> list[str]:
    """The names of arrays in the checkpoint."""
    return [name for name, _ in corruptions.members_of(honest()[0]) if name != "meta.npy"]


def with_array(name: str, change: Callable[[np.ndarray], np.ndarray]) -> bytes:
    """The checkpoint with another array of this name, and valid checksums."""
    members = dict(corruptions.members_of(honest()[0]))
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, change(corruptions.array_of(members[name]).copy()))
    return corruptions.rebuilt(list((members | {name: buffer.getvalue()}).items()), True)


NAMES = st.deferred(lambda: st.sampled_from(names()))


@attack(count=12)
@given(name=NAMES, kind=st.sampled_from(sorted(FLOATS)), look=LOOK)
@example(name="parameters.token_embedding.table.npy", kind="nan", look="sample")
@example(name="parameters.token_embedding.table.npy", kind="nan", look="attend")
@example(name="parameters.token_embedding.table.npy", kind="huge", look="sample")
@example(name="parameters.token_embedding.table.npy", kind="huge", look="resume")
@example(name="parameters.token_embedding.table.npy", kind="inf", look="resume")
@example(name="optimizer.steps.npy", kind="negative", look="resume")
def test_checkpoints_with_odd_values_are_refused_or_right(name: str, kind: str, look: str) -> None:
    """Values that are not finite are refused; other values are loaded unchanged."""

    def change(array: np.ndarray) -> np.ndarray:
        array.reshape(-1)[:5] = (WHOLE if array.dtype.kind in "iu" else FLOATS)[kind]
        return array

    ended = looked_at(f"arrays of {kind}", with_array(name, change), look)
    seen = name.startswith("parameters.") or (look == "resume" and name != "optimizer.steps.npy")
    assert ended == "refused" or np.isfinite(FLOATS[kind]) or not seen, f"{name} holds {kind} and is taken as it is"


@attack(count=6)
@given(name=NAMES, dtype=st.sampled_from(["<f2", "<f8", ">f4", "<i4", "|b1", "<c8", "<f4"]), look=LOOK)
def test_checkpoints_with_other_dtypes_are_refused_or_right(name: str, dtype: str, look: str) -> None:
    looked_at(f"arrays as {dtype}", with_array(name, lambda array: array.astype(dtype)), look)
