"""Every public function and class with one or two odd arguments: refused by our errors, or right."""

import copy
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import numpy_attention as na
from numpy_attention import inside
from numpy_attention.catalogue.table import CATALOGUE
from numpy_attention.gradcheck.problem import is_float
from tests.fuzz.attack import attack, tally
from tests.fuzz.judging import (
    Finding,
    alike,
    bounded,
    call_without_warnings,
    finite,
    foreign,
    moderate,
    place,
    require_our_error,
)
from tests.fuzz.made import COVERED_BY, MADE
from tests.fuzz.odd_values import ALL, HUGE, LAYOUTS, NATIVE, WILD, make_odd, odd_names, plain
from tests.fuzz.subjects import MADE as MADE_OF_Y
from tests.fuzz.subjects import Subject, of_catalogue, sizes_of

Changes = tuple[tuple[str, str], ...]
NEVER_NEGATIVE = {
    "learning_rate", "eps", "norm_eps", "weight_decay", "momentum", "beta_1", "beta_2", "max_norm", "clip", "rate",
    "dropout", "label_smoothing", "temperature", "window", "rotary_base", "base", "num_tokens", "length_penalty",
    "peak", "minimum", "warmup", "steps", "step", "length", "num_heads", "T_q", "T_k", "T", "capacity", "block_size",
    "width", "factor", "chunk_size", "softcap", "rotary_width", "local_rotary_base", "global_every", "nope_every",
    "d_k", "attention_scale",
}
ANYTHING = {"ignore_index", "stop_token", "pad_token", "out", "like"}  # tokens may be any number; NumPy refuses `like`
FORMULAS = {"warmup_cosine"}  # also takes fractions of a step
BY_PYTHON = (TypeError, ValueError, AttributeError, LookupError, OverflowError, OSError)
ELSEWHERE = {"gradcheck": "test_checker.py", "plots": "tests/plots", "load_pretrained": "tests/pretrained",
             "inside": "here, name by name", "grade": "tests/grade/test_notebook.py"}
PUBLIC = {*na.__all__, *inside.__all__}


def is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def subject(name: str) -> Subject:
    return MADE[name]() if name in MADE else of_catalogue(name, 0)


@st.composite
def odd_calls(draw: st.DrawFn) -> tuple[str, Changes]:
    """A subject, and an odd value for one or two of its arguments."""
    name = draw(st.sampled_from(MADE_NAMES) | st.sampled_from(sorted(VARIANTS)).flatmap(a_variant))
    one = subject(name)
    chosen = draw(st.lists(st.sampled_from(open_to(one)), min_size=1, max_size=2, unique=True))
    oddities = [
        draw(st.sampled_from(odd_names(one.kinds.get(argument, ALL), one.good.get(argument), argument)))
        for argument in chosen
    ]
    return name, tuple(zip(chosen, oddities))


def open_to(one: Subject) -> list[str]:
    """The arguments that can be odd; one more name means all arrays together."""
    return [*(argument for argument, kind in one.kinds.items() if kind != "flag"), ALL]


MADE_NAMES = sorted(MADE)
VARIANTS: dict[str, list[str]] = {}  # of each public op, layer and model, so not of a stack of blocks
for _name, _entry in CATALOGUE.items():
    if _entry.covers in PUBLIC and "directions" not in _name:
        VARIANTS.setdefault(_entry.covers, []).append(_name)


def a_variant(covers: str) -> st.SearchStrategy[str]:
    return st.sampled_from(VARIANTS[covers])


def test_every_public_name_is_attacked() -> None:
    attacked = {*MADE, *COVERED_BY, *ELSEWHERE, *(entry.covers for entry in CATALOGUE.values())}
    attacked |= {f"{name}_backward" for name in attacked}
    assert PUBLIC <= attacked
    for name in MADE:
        call_without_warnings(MADE[name]().use, True, **MADE[name]().good)


@attack(count=400)
@given(odd_calls())
@example(("embedding", (("ids", "NumPy scalar -1"),)))
@example(("cross_entropy: one place", (("targets", "NumPy scalar -1"),)))
@example(("scaled_dot_product_attention: mask", ((ALL, "longdouble"),)))
@example(("scaled_dot_product_attention: all keys hidden", ((ALL, "longdouble"),)))
@example(("tiled_attention: grouped heads and mask, tiles of 2", ((ALL, "longdouble"),)))
@example(("Seq2Seq: padded", (("source_ids", "list"),)))
@example(("Seq2Seq: padded", (("source_ids", "flat"),)))
@example(("linear", (("x", "junk None"),)))
@example(("softmax", (("x", "big-endian"),)))
@example(("split_heads", (("x", "subclass"),)))
@example(("split_heads", (("x", "matrix"),)))
@example(("Adam", ((ALL, "matrix"),)))
@example(("Adam", (("beta_1", "1.0"),)))
@example(("Adam", (("beta_2", "1.5"),)))
@example(("SGD", (("learning_rate", "-0.5"),)))
@example(("scaled_dot_product_attention: scale", (("scale", "nan"),)))
@example(("layer_norm", (("eps", "nan"),)))
@example(("rotary: one sequence", (("base", "0"),)))
@example(("causal_mask", (("T_q", "1.5"),)))
@example(("causal_mask", (("T_k", "np.uint8(1)"),)))
@example(("tiled_attention: tiles of 2", (("block_size", "np.uint8(1)"),)))
@example(("MultiHeadAttention", (("num_heads", "np.int64(2)"),)))
@example(("LayerNorm", (("eps", "np.float64(0.5)"),)))
@example(("GPTConfig", (("dropout", "np.float64(0.5)"),)))
@example(("PositionEmbedding: sinusoidal", (("dy", "junk []"),)))
@example(("rotary: one sequence", (("positions", "NumPy scalar"),)))
@example(("Seq2Seq.greedy", (("start_token", "1.5"),)))
@example(("train", (("clip", "None"),)))
@example(("add_low_rank", (("alpha", "None"),)))
@example(("Adam.step", (("learning_rate", "None"),)))
@example(("GPT.generate", (("prompt_ids", "junk [[1, 2], [3]]"),)))
@example(("dropout", (("x", "NumPy scalar"),)))
@example(("tiled_attention: one tile", (("scale", "2**63"), (ALL, "Fortran order"))))
def test_odd_arguments_are_refused_by_our_errors_or_give_right_results(call: tuple[str, Changes]) -> None:
    judge(*call)


@pytest.mark.hour
def test_every_odd_argument_alone_is_refused_or_gives_right_results() -> None:
    found = []
    for name in [*MADE_NAMES, *itertools.chain(*VARIANTS.values())]:
        one = subject(name)
        for argument in open_to(one):
            for how in odd_names(one.kinds.get(argument, ALL), one.good.get(argument), argument):
                try:
                    judge(name, ((argument, how),))
                except Finding as finding:
                    found.append(f"{name}, {argument}, {how}: {finding}")
    assert found == []


@st.composite
def empty_sizes(draw: st.DrawFn) -> tuple[str, str]:
    name = draw(st.sampled_from(sorted(VARIANTS)).flatmap(a_variant))
    return name, draw(st.sampled_from(sizes_of(name)))


@attack(count=60)
@given(empty_sizes())
@example(("linear", "d_in"))
@example(("linear", "d_out"))
@example(("embedding", "d_model"))
@example(("scaled_dot_product_attention: mask", "d_k"))
@example(("tiled_attention: one tile", "d_k"))
@example(("tiled_attention: mask, tiles of 1", "T_q"))
@example(("linear_cross_entropy: nothing counts, blocks of 3", "d"))
@example(("concat_heads: any leading axes", "H"))
@example(("LowRank", "d_in"))
@example(("EncoderBlock: post-norm", "d_k"))
def test_zero_sizes_give_empty_results_or_are_refused(call: tuple[str, str]) -> None:
    judge_empty(*call)


def judge(name: str, changes: Changes) -> None:
    """Try one call.

    Raises: Finding.
    """
    one = subject(name)
    odd = {}
    for argument, how in changes:
        fitting = is_float if how in NATIVE else is_array
        for each in [key for key, value in one.good.items() if fitting(value)] if argument == ALL else [argument]:
            odd[each] = make_odd(one.kinds[each], one.good[each], how)
    arguments = {**one.good, **({"dy": MADE_OF_Y} if "dy" in one.good else {}), **odd}
    oddities = {how for _, how in changes}
    strictly = moderate(arguments) and not HUGE & oddities
    wild = bool(WILD & oddities) or any(
        argument in ANYTHING or one.kinds[argument] == "other" or argument == "path"
        or (one.kinds[argument] == "whole" and not isinstance(value, (int, np.integer)))
        for argument, value in odd.items()
    )
    arrays_before = {key: copy.deepcopy(value) for key, value in arguments.items() if is_array(value)}
    names = {*one.names, *(str(odd[key]) for key in odd if one.kinds[key] == "text")}
    result = tried(names, lambda: call_without_warnings(one.use, strictly, **arguments), bool(HUGE & oddities), wild)
    if result is None:
        return
    for argument, how in changes:
        if argument != ALL:
            _require_valid_number(one, argument, how, odd[argument])
    if not alike({key: arguments[key] for key in arrays_before}, arrays_before):
        raise Finding("an argument was changed")
    twin = {**arguments, **{argument: plain(value, one.good[argument]) for argument, value in odd.items()}}
    try:
        right = call_without_warnings(one.use, strictly, **twin)
    except Exception as error:
        raise Finding(f"accepted, but refused as a plain array: {error}") from error
    if not alike(result, right) and (not LAYOUTS.keys() & oddities or _small_round_off(arguments)):
        raise Finding("a different result than for a plain array of equal values")
    if foreign(result):
        raise Finding("the result contains an array of another class")
    if strictly and not finite(result):
        raise Finding("NaN or infinity for finite inputs")
    tally("arrays", "right")


def judge_empty(name: str, size: str) -> None:
    """Try an entry of the catalogue with one size of 0.

    Raises: Finding.
    """
    try:
        one = of_catalogue(name, 0, size)
    except Exception as error:
        if place(error).startswith(("catalogue", "gradcheck")):
            return  # the entry cannot be drawn with this size
        require_our_error(error, {CATALOGUE[name].covers})
        tally("arrays: zero sizes", "refused")
        return
    result = tried(one.names, lambda: call_without_warnings(one.use, True, **one.good), kind="arrays: zero sizes")
    if result is not None and not finite(result):
        raise Finding("NaN for an empty array")


def tried(
    names: set[str], call: Callable[[], Any], huge: bool = False, wild: bool = False, kind: str = "arrays"
) -> Any:
    """The result; None after a proper refusal, a MemoryError for a huge value, or an error of Python for a wild value.

    Raises: Finding.
    """
    try:
        with bounded(2 if huge else 30):
            return call()
    except Finding:
        if not huge:
            raise
        tally(kind, "too large")
    except Exception as error:
        if isinstance(error, Warning):
            raise Finding(f"a warning: {type(error).__name__}: {error} at {place(error)}") from error
        if huge and isinstance(error, (MemoryError, OverflowError, ValueError, TypeError)):
            tally(kind, "too large")
        elif wild and isinstance(error, BY_PYTHON):
            tally(kind, "refused, by Python perhaps")
        else:
            require_our_error(error, names)
            tally(kind, "refused")
    return None


def _small_round_off(arguments: dict[str, Any]) -> bool:
    """Whether round-off, which depends on the memory layout, stays small: it decides a softmax of scores times 1e18."""
    numbers = [value for value in arguments.values() if isinstance(value, (int, float))]
    return moderate(arguments) and all(abs(value) <= 1e6 for value in numbers)


def _require_valid_number(one: Subject, argument: str, how: str, odd: Any) -> None:
    """Require that an invalid number is refused, whatever the result is."""
    kind = one.kinds[argument]
    if kind not in ("whole", "number") or argument in ANYTHING or (odd is None and argument in one.optional):
        return
    value = float(odd) if isinstance(odd, np.longdouble) else plain(odd, 0)
    whole = kind == "whole" and not one.names & FORMULAS
    if not isinstance(value, int if whole else (int, float)) and how != "Fraction":
        raise Finding(f"{argument} = {odd!r} is accepted as a {kind} number")
    if value != value:
        raise Finding(f"{argument} = nan is accepted")
    if value < 0 and argument in NEVER_NEGATIVE:
        raise Finding(f"{argument} = {odd!r} is accepted, although it is below 0")
