"""Tasks with a classifier are evaluated by the mean loss and the share of correct labels."""

import numpy as np
import pytest

from numpy_attention.ops.c11_losses import cross_entropy
from numpy_attention.training.c30_parallel import Workers
from numpy_attention.training.config import TrainConfig
from numpy_attention.training.tasks import labelled
from numpy_attention.training.tasks.reverse import ReverseTask


@pytest.mark.parametrize("at_once", [3, 7, 512])
def test_evaluation_in_parts_equals_evaluation_at_once(monkeypatch, at_once):
    monkeypatch.setattr(labelled, "AT_ONCE", at_once)
    config = TrainConfig(**({"task": "reverse"} | ReverseTask.defaults | {"context": 4, "seed": 3}))
    task = ReverseTask(config)
    task.test = tuple(array[:20] for array in task.test)
    model = task.model(np.random.default_rng(0))
    ids, targets = task.test
    logits, _ = model.forward(ids)
    with Workers(2) as workers:
        figures = task.evaluate(model, workers)
    assert figures["val_loss"] == pytest.approx(float(cross_entropy(logits, targets)[0]), rel=1e-6)
    assert figures["val_accuracy"] == pytest.approx((logits.argmax(-1) == targets).mean(), rel=1e-12)
