"""The small GPTs that come with the book agree with their settings and logs; one generates text, one repeats."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from numpy_attention import inside
from numpy_attention.app.attend import TEXT
from numpy_attention.app.main import main
from numpy_attention.app.tasks import TASKS, make_task
from numpy_attention.pretrained.shipped import FOLDER, INDUCTION, shipped, shipped_induction
from numpy_attention.training.config import TrainConfig
from numpy_attention.training.data import consecutive_blocks, default_text, split_text
from numpy_attention.training.log import read_log
from numpy_attention.training.parallel import Workers
from numpy_attention.training.restore import load_run, text_model
from numpy_attention.training.trainer import Trainer
from tests.app.commands import trained
from tests.pretrained import make_shipped


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


def test_a_head_of_small_gpt_attends_to_the_start_of_the_word() -> None:
    """The head in the picture of the start page: letters of a word attend to the space before the word."""
    model, vocabulary = shipped()
    weights = model.attention_weights(vocabulary.encode(TEXT)[None])["blocks.2.attention"][0, 1]
    places = {i: TEXT.rindex(" ", 0, i) for i, c in enumerate(TEXT) if c != " " and " " in TEXT[:i]}
    assert np.mean([weights[i, space] for i, space in places.items()]) > 0.5


@pytest.mark.slow
def test_training_with_the_same_seed_starts_like_the_log(tmp_path: Path) -> None:
    """Repeats the first steps of the same command, in float32."""
    config, _, meta = load_run(FOLDER)
    trainer = Trainer(config, make_task(config), tmp_path)
    with trainer.workers:
        losses = [trainer.one_step()[0] for _ in range(10)]
    logged = {row["step"]: row["loss"] for row in its_log()}
    assert trainer.task.saved() == meta["task"]
    assert abs(losses[0] - logged[1]) < 1e-5
    assert abs(losses[-1] - logged[10]) < 1e-3
    assert losses[-1] < losses[0] - 0.5, "else a different start would pass too"


def test_make_shipped_keeps_the_parameters_in_float16(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("The quick brown fox jumps over the lazy dog.\n" * 30)
    sizes = ["--layers=1", "--heads=2", "--d-model=16", "--context=8", "--batch=2", "--steps=2", "--workers=1"]
    trained("--text", tmp_path / "text", "--out", tmp_path / "run", *sizes)
    make_shipped.make(tmp_path / "run", tmp_path / "shipped")
    whole, rounded = (text_model(*load_run(tmp_path / name)[1:])[0].parameters() for name in ("run", "shipped"))
    for name, array in whole.items():
        assert rounded[name].dtype == array.dtype == np.float32
        np.testing.assert_allclose(rounded[name], array, rtol=2**-11, atol=2**-25)
    assert any(not np.array_equal(rounded[name], array) for name, array in whole.items())


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


def test_figures_of_induction_equal_those_in_its_log() -> None:
    model, log = shipped_induction()
    with Workers(1) as workers:
        figures = make_task(load_run(INDUCTION)[0]).evaluate(model, workers)
    for name, value in figures.items():
        assert abs(value - log[-1][name]) < 0.02, name


def test_induction_model_continues_any_repeated_sequence(rng: np.random.Generator) -> None:
    model, _ = shipped_induction()
    for N in (20, 27, 32):
        ids = np.tile(rng.integers(0, 64, (8, N)), 2)
        message = model.forward(ids)[0].argmax(-1)
        assert (message[:, N + 2 : -1] == ids[:, N + 3 :]).mean() > 0.9
        assert max(inside.prefix_matching_scores(model, ids)["blocks.1.attention"]) > 0.7


@pytest.mark.slow
def test_training_of_induction_with_the_same_seed_starts_like_the_log(tmp_path: Path) -> None:
    config, _, _ = load_run(INDUCTION)
    trainer = Trainer(config, make_task(config), tmp_path)
    with trainer.workers:
        losses = [trainer.one_step()[0] for _ in range(10)]
    logged = {row["step"]: row["loss"] for row in read_log(INDUCTION / "log.jsonl")}
    assert abs(losses[0] - logged[1]) < 1e-5
    assert abs(losses[9] - logged[10]) < 1e-3


@pytest.mark.slow
def test_the_train_command_gives_a_run_with_the_described_properties(tmp_path: Path) -> None:
    assert main(["train", "--task", "induction", "--seed", "1", "--out", str(tmp_path / "run")]) == 0
    check_description(read_log(tmp_path / "run" / "log.jsonl"))
