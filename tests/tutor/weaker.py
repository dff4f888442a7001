"""Weaker checks: the full check with one part removed, to see which mistakes a weaker check misses.

gallery_page.py writes the results to docs/gallery.md. Each weakness is a shortcut that is common in quick tests. There
are three kinds:

    compare     how gradients are checked: with a dy of ones, in float32, by a falling loss, only by their shapes
    change      which inputs are used: gammas of one, no hidden keys, ids that all differ, dropout off
    sizes       which sizes are used: all axes equal, a batch of one

A mistake counts as missed only if every draw misses it; there are three seeds for each entry of its op. So the number
of missed mistakes is a lower bound.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from numpy_attention.gradcheck.check import check
from numpy_attention.gradcheck.problem import Arrays, Gradients, Outputs, Problem, is_float, random_cotangent
from numpy_attention.gradcheck.report import GradientError
from numpy_attention.gradcheck.spec import Sizes
from numpy_attention.training.c25_optimizers import SGD
from numpy_attention.tutor.catalogue import TRIALS
from numpy_attention.tutor.entry import Entry
from numpy_attention.tutor.exercise import SEEDS
from numpy_attention.tutor.gallery import PROPERTIES, entries_of, message_of, trials_of
from numpy_attention.tutor.mistake import Mistake
from numpy_attention.tutor.pages.generation import trial_of_kv_cache
from numpy_attention.tutor.pages.low_rank import trial_of_low_rank_start
from numpy_attention.tutor.pages.masks import trial_of_causal_mask
from numpy_attention.tutor.pages.optimizers import trial_of_clipping, trial_of_tied_step
from tests.tutor.rules import forward_matches_formula, two_uses_do_not_disturb_each_other

OTHERS = (forward_matches_formula, two_uses_do_not_disturb_each_other, *PROPERTIES[1:])  # besides right gradients
Compare = Callable[[Problem, int], object]  # raises an error if the gradients are wrong


def dy_of_ones(problem: Problem, seed: int) -> None:
    """Checks the gradient of the plain sum of all outputs."""

    def run(arrays: Arrays) -> tuple[Outputs, Any]:
        y, cache = problem.run(arrays)
        return (_total(y),), (y, cache)

    def pull_back(dy: Outputs, cache: Any) -> Gradients:
        y, inner = cache
        return problem.pull_back(tuple(np.ones_like(one) * dy[0].astype(one.dtype) for one in y), inner)

    def bind(arrays: Arrays) -> Callable[[], Outputs]:
        evaluate = problem.bind(arrays)
        return lambda: (_total(evaluate()),)

    check(problem.with_changes(run=run, pull_back=pull_back, bind=bind), seed, structure=False)


def _total(y: Outputs) -> np.ndarray:
    return np.asarray(sum(one.sum() for one in y))


def float32_differences(problem: Problem, seed: int) -> None:
    """Compares with central differences in float32, step 1e-2, tolerance 5 % of the largest element."""
    _plain_differences(problem, seed, np.float32, 1e-2, lambda size: (0.0, 0.05 * size))


def absolute_or_relative(problem: Problem, seed: int) -> None:
    """Compares the gradient of a mean loss by np.allclose with rtol = atol = 1e-3."""
    _plain_differences(problem, seed, np.float64, 1e-5, lambda size: (1e-3, 1e-3), mean=True)


def _plain_differences(problem: Problem, seed: int, dtype: Any, h: float, tolerance: Any, mean: bool = False) -> None:
    arrays = {name: np.array(value, dtype) if is_float(value) else value for name, value in problem.inputs.items()}
    y, cache = problem.run(arrays)
    dy = random_cotangent(y, seed)
    if mean:
        dy = tuple(one / max(one.size, 1) for one in dy)
    grads = problem.pull_back(dy, cache)
    for name in problem.differentiable:
        x, grad = arrays[name].reshape(-1), grads.get(name)
        if grad is None:
            continue
        numeric = np.empty(x.size)
        for i in range(x.size):
            original, values = x[i], []
            for step in (h, -h):
                x[i] = original + dtype(step)
                values.append(sum(float(np.sum(a * b)) for a, b in zip(dy, problem.run(arrays)[0])))
            x[i] = original
            numeric[i] = (values[0] - values[1]) / (2 * h)
        rtol, atol = tolerance(float(np.max(np.abs(numeric), initial=0.0)))
        if grad.shape != arrays[name].shape or not np.allclose(grad.reshape(-1), numeric, rtol=rtol, atol=atol):
            raise GradientError(f"d{name} differs")


def a_hundred_elements(problem: Problem, seed: int) -> None:
    """Runs the full check on a hundred elements: with all sizes equal, attention has thousands of parameters."""
    check(problem, seed, sample=100, structure=False)


def the_loss_falls(problem: Problem, seed: int) -> None:
    """Fifty small steps along the gradient of a squared distance must reduce this distance.

    If the right gradient is zero (scores of 500, all keys hidden), the loss of the right op does not fall either. Such
    a draw does not count (`misses`).
    """
    arrays = {name: np.array(value) for name, value in problem.inputs.items()}
    y, _ = problem.run(arrays)
    goals = tuple(one + 0.5 * noise for one, noise in zip(y, random_cotangent(y, seed)))
    losses = []
    for _ in range(50):
        y, cache = problem.run(arrays)
        dy = tuple(one - goal for one, goal in zip(y, goals))
        losses.append(sum(float(np.sum(one * one)) for one in dy))
        for name, grad in problem.pull_back(dy, cache).items():
            if grad is not None:
                arrays[name] = arrays[name] - 0.003 * grad
    if not losses[-1] < losses[0]:
        raise GradientError(f"the loss went from {losses[0]:.3g} to {losses[-1]:.3g}")


def shapes_and_isfinite(problem: Problem, seed: int) -> None:
    """The gradients must have the shapes of their arguments, and only finite elements."""
    y, cache = problem.run(problem.inputs)
    for name, grad in problem.pull_back(random_cotangent(y, seed), cache).items():
        if grad is not None and (grad.shape != problem.inputs[name].shape or not np.isfinite(grad).all()):
            raise GradientError(f"d{name} has shape {grad.shape} or is not finite")


def parameters_only(problem: Problem, seed: int) -> None:
    """Runs the full check on the parameters of a layer, without dx."""
    if not problem.parameters:
        check(problem, seed, structure=False)
        return
    constant = [name for name in problem.differentiable if name not in problem.parameters]

    def pull_back(dy: Outputs, cache: Any) -> Gradients:
        return {name: None if name in constant else grad for name, grad in problem.pull_back(dy, cache).items()}

    without = problem.without | frozenset(constant)
    check(problem.with_changes(pull_back=pull_back, without=without), seed, structure=False)


def _prepare(entry: Entry, change: Callable[[Arrays], Arrays]) -> Entry:
    before = entry.prepare

    def prepare(inputs: Arrays, sizes: Sizes) -> Arrays:
        return change(inputs if before is None else before(inputs, sizes))

    return replace(entry, prepare=prepare)


def _gammas_of_one(inputs: Arrays) -> Arrays:
    constant = {"gamma": 1.0, "beta": 0.0}
    return {name: np.full_like(x, constant[name]) if name in constant else x for name, x in inputs.items()}


def _nothing_hidden(inputs: Arrays) -> Arrays:
    visible = {name: np.ones_like(x) for name, x in inputs.items() if x.dtype == bool}
    if "targets" in inputs:
        t = inputs["targets"]
        visible["targets"] = np.where((t < 0) | (t > 1000), 0, t)
    return {**inputs, **visible}


def _ids_all_different(inputs: Arrays) -> Arrays:
    if "ids" not in inputs:
        return inputs
    ids = inputs["ids"]
    return {**inputs, "ids": np.random.default_rng(ids.size).permutation(ids.size).reshape(ids.shape)}


def options_of(entry: Entry, sizes: Sizes) -> Mapping[str, Any]:
    return entry.options(sizes) if callable(entry.options) else entry.options


def _without_dropout(entry: Entry) -> Entry:
    def options(sizes: Sizes) -> dict[str, Any]:
        given = options_of(entry, sizes)
        off = {"rng": None} if "rng" in given else {}
        return {name: value for name, value in given.items() if name != "training"} | off

    return replace(entry, options=options)


def _without_causal(entry: Entry) -> Entry | None:
    given = options_of(entry, entry.sizes(np.random.default_rng(0)))
    causal = given.get("causal") or "causal" in entry.name.partition(":")[2]
    hidden = any(words in entry.name for words in ("nothing counts", "all keys hidden"))
    return None if causal or hidden else _prepare(entry, _nothing_hidden)


def _as_often_written(entry: Entry) -> Entry | None:
    visible = None if "4 leading" in entry.name else _without_causal(_without_dropout(entry))
    return visible and _prepare(_prepare(visible, _gammas_of_one), _ids_all_different)


def trial_of_descent(optimizer: Callable[..., Any], seed: int) -> None:
    """A weak trial: it only checks that the loss falls."""
    rng = np.random.default_rng(seed)
    goal = rng.standard_normal((3, 2))
    p = {"w": np.zeros_like(goal)}
    stepper = optimizer(p, learning_rate=0.05)
    for _ in range(100):
        stepper.step({"w": p["w"] - goal})
    loss = float(np.sum((p["w"] - goal) ** 2))
    assert loss < 0.5 * float(np.sum(goal**2)), f"the loss fell only to {loss:.3g}"


@dataclass(frozen=True)
class Weakness:
    """A weaker check, as a change of the full check; `trials` replaces trials by name, None removes a trial."""

    name: str
    compare: Compare = check
    change: Callable[[Entry], Entry | None] = lambda entry: entry
    sizes: Sizes | None = None
    gradients_only: bool = False
    trials: dict[str, Any] | None = None


_NO_TRIALS = dict.fromkeys(TRIALS)
_NAMES = ("B", "T", "T_q", "T_k", "H", "H_kv", "G", "d", "d_k", "d_v", "d_in", "d_out", "V", "N", "A", "C", "D", "half")
_EQUAL: Sizes = {**dict.fromkeys(_NAMES, 4), "...": (4, 4)}
_DISTINCT: Sizes = {"V": 7, "B": 2, "T": 3, "...": (2, 3)}
_ONE: Sizes = {"B": 1, "...": (3,)}

WEAKER: tuple[Weakness, ...] = (
    Weakness("dy of ones", dy_of_ones),
    Weakness("gamma of ones, beta of zeros", change=lambda entry: _prepare(entry, _gammas_of_one)),
    Weakness(
        "all sizes equal", a_hundred_elements, sizes=_EQUAL,
        trials={"causal_mask": partial(trial_of_causal_mask, square=True)},
    ),
    Weakness(
        "a batch of one, one leading axis", change=lambda entry: None if "4 leading" in entry.name else entry,
        sizes=_ONE
    ),
    Weakness("no mask, no padding", change=_without_causal, trials={"causal_mask": None}),
    Weakness("dropout off", change=_without_dropout),
    Weakness("all ids different", change=lambda entry: _prepare(entry, _ids_all_different), sizes=_DISTINCT),
    Weakness(
        "changes 1 to 7 at once", dy_of_ones, _as_often_written, {**_EQUAL, "V": 8, **_ONE},
        trials={"causal_mask": None},
    ),
    Weakness("differences in float32, tolerance 5 %", float32_differences),
    Weakness("mean loss, absolute or relative tolerance 1e-3", absolute_or_relative),
    Weakness("parameters only, not dx", parameters_only),
    Weakness("gradients only: no check of results or repeats", gradients_only=True, trials=_NO_TRIALS),
    Weakness(
        "KV cache with one token, clipping of one array, SGD only",
        trials={
            "logits_step_by_step": partial(trial_of_kv_cache, length=1),
            "clip_by_global_norm": partial(trial_of_clipping, arrays=1),
            "tied_step": partial(trial_of_tied_step, optimizer=SGD),
        },
    ),
    Weakness(
        "check only that the loss falls", the_loss_falls, gradients_only=True,
        trials={
            **_NO_TRIALS, "Adam": trial_of_descent, "AdamW": trial_of_descent,
            "low_rank_start": partial(trial_of_low_rank_start, look_first=False),
        },
    ),
    Weakness("check only shapes and isfinite", shapes_and_isfinite, gradients_only=True, trials=_NO_TRIALS),
)


def misses(weakness: Weakness, mistake: Mistake) -> bool:
    """Whether the weaker check misses a mistake with all seeds."""
    if mistake.covers in TRIALS:
        trial = (weakness.trials or {}).get(mistake.covers, *trials_of(mistake))
        return not any(message_of(trial, mistake.made(mistake.covers), seed) for seed in SEEDS if trial)

    def gradients(entry: Entry, seed: int, sizes: Sizes | None) -> None:
        weakness.compare(entry.case(seed, np.float64, sizes).problem(), seed)

    for entry in filter(None, map(weakness.change, entries_of(mistake))):
        for check_, seed in product((gradients, *(() if weakness.gradients_only else OTHERS)), SEEDS):
            sizes = _sizes(entry, weakness, seed)
            # A failure of the right op too does not show the mistake.
            if message_of(check_, mistake.spoil(entry), seed, sizes) and not message_of(check_, entry, seed, sizes):
                return False
    return True


def _sizes(entry: Entry, weakness: Weakness, seed: int) -> Sizes | None:
    if weakness.sizes is None:
        return None
    drawn = entry.sizes(np.random.default_rng(seed))
    return {**drawn, **{name: size for name, size in weakness.sizes.items() if name in drawn}}
