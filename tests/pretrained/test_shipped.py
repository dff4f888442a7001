"""The small GPTs that come with the book agree with their settings and logs; one generates text, one repeats."""

import dataclasses
import json

import numpy as np
import pytest

from numpy_attention import inside
from numpy_attention.app.tasks import TASKS
from numpy_attention.pretrained.shipped import FOLDER, INDUCTION, shipped, shipped_induction
from numpy_attention.training.c27_data import consecutive_blocks, default_text, split_text
from numpy_attention.training.config import TrainConfig
from numpy_attention.training.log import read_log
from numpy_attention.training.restore import load_run


def its_log() -> list[dict[str, float]]:
    return [json.loads(line) for line in (FOLDER / "log.jsonl").read_text("utf-8").splitlines()]


def test_small_gpt_is_the_default_run_in_less_than_two_million_bytes() -> None:
    config, arrays, meta = load_run(FOLDER)
    assert dataclasses.replace(config, workers=0) == TrainConfig()
    assert meta["step"] == config.steps == its_log()[-1]["step"]
    assert all(array.dtype == np.float16 for array in arrays.values())
    assert sum(array.size for array in arrays.values()) == 806_528
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 2_000_000


@pytest.mark.parametrize(
    ("every", "expected"),
    [(40, 1.35899), pytest.param(1, its_log()[-1]["val_loss"], marks=pytest.mark.slow, id="all, as in its log")],
)
def test_loss_of_small_gpt_equals_the_loss_in_its_log(every: int, expected: float) -> None:
    """The expected loss of a few batches was measured with a model whose loss over all batches equals the log."""
    model, vocabulary = shipped()
    _, held_out = split_text(vocabulary.encode(default_text()))
    batches = list(consecutive_blocks(held_out, 256, 8))[::every]
    loss = np.average([model.loss(*batch)[0] for batch in batches], weights=[ids.size for ids, _ in batches])
    assert abs(loss - expected) < 1e-3


def test_induction_is_the_default_run_of_its_task_and_small() -> None:
    config, arrays, meta = load_run(INDUCTION)
    assert config == TrainConfig(task="induction", workers=2, **TASKS["induction"].defaults)
    assert meta["step"] == config.steps == read_log(INDUCTION / "log.jsonl")[-1]["step"]
    assert all(array.dtype == np.float16 for array in arrays.values())
    assert sum(path.stat().st_size for path in INDUCTION.iterdir()) < 500_000


def test_induction_model_continues_any_repeated_sequence(rng: np.random.Generator) -> None:
    model, _ = shipped_induction()
    for N in (20, 27, 32):
        ids = np.tile(rng.integers(0, 64, (8, N)), 2)
        message = model.forward(ids)[0].argmax(-1)
        assert (message[:, N + 2 : -1] == ids[:, N + 3 :]).mean() > 0.9
        assert max(inside.prefix_matching_scores(model, ids)["blocks.1.attention"]) > 0.7
