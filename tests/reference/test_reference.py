"""Every op agrees with PyTorch's autograd in float64, forward and backward; ops.npz holds the results of PyTorch."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.tutor.catalogue import PLAIN
from tests.reference.cases import CASES, Case

TOLERANCE = 1e-9


@pytest.fixture(scope="module")
def stored() -> dict[str, np.ndarray]:
    with np.load(Path(__file__).with_name("ops.npz")) as file:
        return dict(file)


def widened(array: np.ndarray) -> np.ndarray:
    """Stored numbers have the smallest possible dtype; the comparison uses float64."""
    return array.astype({"f": np.float64, "i": np.int64, "b": np.bool_}[array.dtype.kind])


class FixedDraws(np.random.Generator):
    """A generator that returns given draws."""

    def __init__(self, draws: np.ndarray) -> None:
        super().__init__(np.random.PCG64(0))
        self.draws = draws

    def random(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        return self.draws.reshape(size).astype(dtype)


def arguments(name: str, case: Case, stored: dict[str, np.ndarray]) -> dict[str, Any]:
    prefix = f"{name}/"
    known = {key.removeprefix(prefix) for key in stored if key.startswith(prefix)}
    results = {"y", "dy", *(f"d{argument}" for argument in case.differentiable)}
    inputs: dict[str, Any] = {key: widened(stored[prefix + key]) for key in sorted(known - results)}
    if "draws" in inputs:   # the draws that PyTorch used too
        draws = inputs.pop("draws")
        inputs["rng"] = FixedDraws(draws)
    return inputs


def assert_agrees(ours: np.ndarray, theirs: np.ndarray, what: str) -> None:
    assert ours.shape == theirs.shape, f"{what}: ours {ours.shape}, PyTorch's {theirs.shape}"
    error = np.abs(ours - theirs).max()
    assert error <= TOLERANCE * np.abs(theirs).max(), f"{what}: off by {error:.1e} of {np.abs(theirs).max():.1e}"


@pytest.mark.parametrize(("name", "case"), CASES.items(), ids=CASES.keys())
def test_forward_and_backward_agree_with_pytorch(name: str, case: Case, stored: dict[str, np.ndarray]) -> None:
    inputs = arguments(name, case, stored)
    if case.op == "sinusoidal_positions":   # a fixed table: no gradient and no cache
        assert_agrees(na.sinusoidal_positions(**case.options, dtype=np.float64), stored[f"{name}/y"], "the table")
        return
    y, cache = getattr(na, case.op)(**inputs, **case.options)
    assert_agrees(y, stored[f"{name}/y"], "y")

    found = getattr(na, f"{case.op}_backward")(widened(stored[f"{name}/dy"]), cache)
    gradients = found if isinstance(found, tuple) else (found,)
    for argument, gradient in zip(case.differentiable, gradients, strict=True):
        if argument in inputs:
            assert_agrees(gradient, stored[f"{name}/d{argument}"], f"d{argument}")
        else:
            assert gradient is None, f"d{argument} of an argument that was not given must be None"


def test_every_op_is_compared_with_pytorch_or_a_plain_form() -> None:
    """Each op is compared with PyTorch here, or with a plain form in the module of its page."""
    compared = {case.op for case in CASES.values()}
    public = {name.removesuffix("_backward") for name in dir(na) if name.endswith("_backward")}
    assert len(public & compared) > 10
    assert public <= compared | set(PLAIN)


def test_the_stored_vectors_cover_masks_repeated_ids_and_ignored_targets(stored: dict[str, np.ndarray]) -> None:
    """Without such masks, repeated ids and ignored targets the comparison would prove less."""
    for name, case in CASES.items():
        for argument, array in case.inputs(name).items():
            np.testing.assert_array_equal(widened(stored[f"{name}/{argument}"]), array)
    masks = [array for key, array in stored.items() if key.endswith("/mask")]
    assert masks
    assert all(mask.any() and not mask.all() for mask in masks)
    assert any((~mask).all(axis=-1).any() for mask in masks), "one case has a query without visible keys"
    assert len(np.unique(stored["embedding, ids repeat/ids"])) < stored["embedding, ids repeat/ids"].size
    assert (stored["cross-entropy, ignored targets/targets"] == -100).any()
