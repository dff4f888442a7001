"""GPT, classifier and encoder-decoder agree with the same models in PyTorch, whose results are stored."""

import numpy as np
import pytest

import numpy_attention as na
from tests.models.twin_cases import ADAMW, FILE, MODELS, make


@pytest.fixture(scope="module")
def stored() -> dict[str, np.ndarray]:
    with np.load(FILE) as file:
        return dict(file)


@pytest.mark.parametrize("name", MODELS)
def test_losses_gradients_and_five_steps_agree_with_pytorch(name, stored):
    model, batches = make(name)
    optimizer = na.AdamW(model.parameters(), **ADAMW)
    for step, (batch, expected) in enumerate(zip(batches, stored[f"{name}/losses"], strict=True)):
        loss, cache = model.loss(*batch, training=True)  # no rng: labels are smoothed, without dropout
        grads = model.backward(cache)
        assert float(loss) == pytest.approx(expected, rel=1e-12 if step == 0 else 1e-9)
        if step == 0:
            assert_close(grads, stored[f"{name}/gradients"])
        optimizer.step(grads)
    assert_close(model.parameters(), stored[f"{name}/after"])


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_stored_numbers_are_those_of_pytorch(name, stored):
    from tests.models.torch_twins import run  # needs PyTorch

    for key, value in run(name).items():
        # Processors round differently. Five steps of Adam amplify this where a gradient is only round-off.
        atol = 1e-10 if key.endswith("/after") else 1e-13
        np.testing.assert_allclose(stored[key], value, rtol=1e-10, atol=atol)


def assert_close(found: dict[str, np.ndarray], stored: np.ndarray) -> None:
    """`stored` holds the numbers of all parameters one after the other."""
    assert stored.size == sum(value.size for value in found.values())
    for key, value in found.items():
        expected, stored = stored[: value.size].reshape(value.shape), stored[value.size :]
        # The gradient of b_k is zero up to rounding: a shift of all scores of a row changes no weight.
        size = max(float(np.abs(expected).max()), 1e-3)
        assert np.abs(value - expected).max() <= 1e-9 * size, key
