"""Compares our results with reference results of PyTorch, stored as sums along random directions."""

from pathlib import Path

import numpy as np

from numpy_attention.models.c21c_model import Model
from numpy_attention.pretrained import c34_names as names
from numpy_attention.pretrained.c36_load import FOLDERS
from tests.reference.pretrained_cases import direction, places

REFERENCE = Path(__file__).parents[1] / "reference"


def stored(file: str, case: str) -> dict[str, np.ndarray]:
    """The reference results of one case."""
    with np.load(REFERENCE / file) as found:
        return {key.split("/", 1)[1]: found[key] for key in found.files if key.startswith(f"{case}/")}


def ours_of(model: Model, kind: str, wanted: list[str]) -> dict[str, list[str]]:
    """For each wanted tensor of a folder, our parameters that it fills."""
    found: dict[str, list[str]] = {name: [] for name in wanted}
    for name in model.parameters():
        theirs = names.their_name(name, FOLDERS[kind].names, gguf=False)
        found[next(first + theirs for first in names.FIRST if first + theirs in found)].append(name)
    return found


def _in_our_layout(model: Model, name: str, theirs: str, array: np.ndarray) -> np.ndarray:
    """A tensor of a folder in our orientation and order."""
    return names.as_ours(array, name, theirs, model, interleaved=False)


def gradient_errors(
    model: Model, kind: str, grads: dict[str, np.ndarray], reference: dict[str, np.ndarray]
) -> tuple[float, float]:
    """The errors of our gradients: the largest error of any tensor, in units of its gradient's norm; and the error of
    all gradients as one vector.

    Norms, sums along random directions and samples are compared. A sum along a direction with standard deviation 1 is
    typically as large as the norm, so the errors of these sums show the size of the error. Some gradients are zero
    except for rounding, for example b_k of a BERT. So no unit is smaller than a hundredth of the largest norm.
    """
    wanted, expected = [str(name) for name in reference["names"]], reference["gradients"]
    units = np.maximum(expected[:, 0], 0.01 * expected[:, 0].max())
    errors = np.array([_sums(model, *pair, grads) for pair in ours_of(model, kind, wanted).items()]) - expected
    worst = float((np.abs(errors).max(axis=1) / units).max())
    for at, some in enumerate(reference.get("some of the gradients", ())):
        found = _samples(model, wanted[at], ours_of(model, kind, wanted)[wanted[at]], grads, len(some))
        worst = max(worst, float(np.abs(found - some).max() / units[at]))
    return worst, float(np.sqrt((errors[:, 1:] ** 2).mean(axis=1).sum() / (expected[:, 0] ** 2).sum()))


def _sums(model: Model, theirs: str, ours: list[str], grads: dict[str, np.ndarray]) -> list[float]:
    parts = {name: grads[name].astype(np.float64) for name in ours}
    along = [direction(theirs, i, _shape_in_folder(model, ours, theirs)) for i in range(2)]
    sums = [sum(np.vdot(_in_our_layout(model, name, theirs, x), g) for name, g in parts.items()) for x in along]
    return [float(np.sqrt(sum(np.vdot(g, g) for g in parts.values()))), *map(float, sums)]


def _samples(model: Model, theirs: str, ours: list[str], grads: dict[str, np.ndarray], count: int) -> np.ndarray:
    """The numbers of our gradient at the chosen places of the tensor in the folder."""
    [name] = ours
    shape = _shape_in_folder(model, ours, theirs)
    chosen = places(theirs, count, int(np.prod(shape)))
    order = _in_our_layout(model, name, theirs, np.arange(np.prod(shape)).reshape(shape)).reshape(-1)
    back = np.empty_like(order)
    back[order] = np.arange(order.size)
    found: np.ndarray = grads[name].reshape(-1)[back[chosen]]
    return found


def _shape_in_folder(model: Model, ours: list[str], theirs: str) -> tuple[int, ...]:
    parameters = model.parameters()
    shape = parameters[ours[0]].shape
    if len(ours) == 3:
        return (*shape[:-1], 3 * shape[-1])
    transposed = ours[0].rsplit(".", 1)[-1].startswith("w") and not names.X_W.search(theirs)
    return shape[::-1] if transposed else shape
