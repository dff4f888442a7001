"""sum: the labels."""

import numpy as np

from numpy_attention.training.config import TrainConfig
from numpy_attention.training.tasks.sums import SumTask


def test_labels_match_the_sums():
    config = TrainConfig(**({"task": "sum"} | SumTask.defaults))
    ids, labels = SumTask(config).examples(500, np.random.default_rng(0))
    assert ids.min() == 0
    assert ids.max() == 99
    np.testing.assert_array_equal(labels, [int(sum(row) > 400) for row in ids.tolist()])
