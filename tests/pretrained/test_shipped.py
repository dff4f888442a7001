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


def figure_of(line: dict[str, float], kind: str, block: int) -> dict[int, float]:
    """The scores of a block's heads in a line of the log."""
    prefix = f"{kind}.blocks.{block}.attention."
    return {int(name.removeprefix(prefix)): score for name, score in line.items() if name.startswith(prefix)}


def check_description(log: list[dict[str, float]]) -> None:
    """Check the description of the run: a plateau, a sudden fall, and at the fall two kinds of heads in two blocks."""
    lines = {int(line["step"]): line for line in log if "val_loss" in line}
    second = {step: line["val_loss_second"] for step, line in lines.items()}
    last = lines[max(lines)]
    assert min(loss for step, loss in second.items() if step <= 250) > 3.5, "a plateau"
    cliff = min(step for step, loss in second.items() if loss < 1.0)
    assert cliff <= 600
    assert second[cliff - 100] > 3.0, "a fall of at least two nats in a hundred steps"
    assert last["val_loss_second"] < 0.1
    assert last["val_accuracy"] > 0.97
    assert min(last[f"loss_at_{t}"] for t in range(16)) > 4.0, "the first half is random and cannot be predicted"
    assert max(last[f"loss_at_{t}"] for t in range(34, 64)) < 0.5
    assert max(figure_of(last, "previous_token", 0).values()) > 0.4
    assert max(figure_of(last, "previous_token", 1).values()) < 0.2
    matching = figure_of(last, "prefix_matching", 1)
    best = max(matching, key=matching.__getitem__)
    assert matching[best] > 0.7
    assert max(figure_of(last, "prefix_matching", 0).values()) < 0.1
    assert figure_of(last, "copying", 1)[best] > 0.9
    before = lines[cliff - 100]
    assert max(figure_of(before, "previous_token", 0).values()) < 0.3, "these heads appear at the fall"
    assert max(figure_of(before, "prefix_matching", 1).values()) < 0.3


def test_induction_is_the_default_run_of_its_task_and_small() -> None:
    config, arrays, meta = load_run(INDUCTION)
    assert config == TrainConfig(task="induction", workers=2, **TASKS["induction"].defaults)
    assert meta["step"] == config.steps == read_log(INDUCTION / "log.jsonl")[-1]["step"]
    assert all(array.dtype == np.float16 for array in arrays.values())
    assert sum(path.stat().st_size for path in INDUCTION.iterdir()) < 500_000


def test_log_of_induction_shows_the_sudden_fall_and_the_two_kinds_of_heads() -> None:
    check_description(shipped_induction()[1])


def test_induction_model_continues_any_repeated_sequence(rng: np.random.Generator) -> None:
    model, _ = shipped_induction()
    for N in (20, 27, 32):
        ids = np.tile(rng.integers(0, 64, (8, N)), 2)
        message = model.forward(ids)[0].argmax(-1)
        assert (message[:, N + 2 : -1] == ids[:, N + 3 :]).mean() > 0.9
        assert max(inside.prefix_matching_scores(model, ids)["blocks.1.attention"]) > 0.7
