"""induction: sequences repeat with random periods; the log holds the loss at each position and the heads' scores."""

import math

import numpy as np
import pytest

from numpy_attention.app.tasks import make_task
from numpy_attention.errors import InputError
from numpy_attention.training.config import TrainConfig
from numpy_attention.training.tasks.induction import SYMBOLS, InductionTask
from tests.training.tasks.trained import trained


def task_of(**settings):
    return make_task(TrainConfig(**({"task": "induction"} | InductionTask.defaults | settings)))


def period(row):
    """The smallest one."""
    return next(n for n in range(1, len(row) + 1) if np.array_equal(row[n:], row[:-n]))


def test_training_periods_are_random_from_a_quarter_to_half_of_the_context():
    task = task_of(context=32, batch=400)
    ids, targets = task.batch(np.random.default_rng(0))
    assert ids.shape == targets.shape == (400, 32)
    np.testing.assert_array_equal(ids[:, 1:], targets[:, :-1])
    rows = np.concatenate([ids, targets[:, -1:]], axis=1)
    assert {period(row) for row in rows} == set(range(8, 17))
    assert set(ids.ravel()) == set(range(SYMBOLS))


def test_second_half_of_test_repeats_the_first_and_seeds_differ():
    ids, _ = task_of(context=32).test
    np.testing.assert_array_equal(ids[:, :16], ids[:, 16:])
    assert {period(row) for row in ids} == {16}
    assert task_of().reference_lines() == {"guessing": math.log(64), "half known": math.log(64) / 2}
    np.testing.assert_array_equal(ids, task_of(context=32).test[0])
    assert not np.array_equal(ids, task_of(context=32, seed=1).test[0])


def test_evaluation_covers_the_whole_test_set(tmp_path):
    trainer, figures = trained(tmp_path, "induction", context=16, d_model=16, heads=2, steps=3)
    model, (ids, targets) = trainer.model, trainer.task.test
    losses = np.array([[float(model.loss(ids[:, : t + 1], only_last(targets, t))[0])] for t in range(16)])[:, 0]
    for t in range(16):
        assert math.isclose(figures[f"loss_at_{t}"], losses[t], rel_tol=1e-5)
    assert math.isclose(figures["val_loss"], losses.mean(), rel_tol=1e-5)
    assert math.isclose(figures["val_loss_first"], losses[:8].mean(), rel_tol=1e-5)
    assert math.isclose(figures["val_loss_second"], losses[8:].mean(), rel_tol=1e-5)
    predicted = model.forward(ids)[0].argmax(-1)
    assert math.isclose(figures["val_accuracy"], (predicted == targets)[:, 8:].mean())
    weights = model.attention_weights(ids)["blocks.1.attention"][:, 1]
    before = np.mean([weights[:, t, t - 1].mean() for t in range(1, 16)])
    next_time = np.mean([weights[:, t, t - 7].mean() for t in range(8, 16)])
    assert math.isclose(figures["previous_token.blocks.1.attention.1"], before, rel_tol=1e-5)
    assert math.isclose(figures["prefix_matching.blocks.1.attention.1"], next_time, rel_tol=1e-5)
    assert sum(name.startswith("copying.") for name in figures) == 4
    assert all(type(value) is float for value in figures.values())


def only_last(targets, t):
    """The targets up to position t, of which only the last counts."""
    masked = np.full((len(targets), t + 1), -100)
    masked[:, t] = targets[:, t]
    return masked


@pytest.mark.parametrize("context", [30])
def test_refuses_context_that_is_not_a_multiple_of_four(context):
    with pytest.raises(InputError, match="--context must be a multiple of 4 from 8 on"):
        task_of(context=context, batch=1)
