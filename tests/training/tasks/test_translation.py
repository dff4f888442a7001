"""Tasks with an encoder-decoder are evaluated by whole outputs."""

import numpy as np

from numpy_attention.app.tasks import TASKS, make_task
from numpy_attention.training.config import TrainConfig
from numpy_attention.training.tasks import dates


def test_exact_match_compares_every_token(tmp_path):
    config = TrainConfig(**({"task": "dates"} | TASKS["dates"].defaults))
    task = make_task(config)

    class Oracle:
        """Write two of three dates correctly."""

        def greedy(self, source_ids, start_token, stop_token, max_tokens):
            return [right, np.append(right[:-2], [3, 2]), right]

    source_ids, target_ids, targets = dates.encode_dates([("3 May 1987", "1987-05-03")] * 3)
    right = targets[0]
    np.testing.assert_array_equal(task.exact(Oracle(), (source_ids, target_ids, targets)), [True, False, True])
