"""induction: sequences repeat with random periods; the log holds the loss at each position and the heads' scores."""

import math

import numpy as np
import pytest

from numpy_attention.app.main import main
from numpy_attention.app.tasks import make_task
from numpy_attention.errors import InputError
from numpy_attention.training.config import TrainConfig
from numpy_attention.training.log import read_log
from numpy_attention.training.parallel import Workers
from numpy_attention.training.tasks.induction import SYMBOLS, InductionTask
from numpy_attention.training.tasks.labelled import symbols
from tests.app.commands import trained as trained_by_command
from tests.training.tasks.trained import trained

SMALL = ["--heads=2", "--d-model=16", "--context=16", "--batch=4", "--workers=1", "--steps=2", "--eval-every=1"]


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


def test_input_and_output_tables_are_separate():
    assert task_of().model(np.random.default_rng(0)).head is not None


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


def test_evaluation_does_not_depend_on_threads(tmp_path):
    trainer, figures = trained(tmp_path, "induction", context=16, d_model=16, heads=2, steps=1)
    with Workers(3) as workers:
        assert trainer.task.evaluate(trainer.model, workers) == figures


@pytest.mark.parametrize("context", [4, 30])
def test_refuses_context_that_is_not_a_multiple_of_four(context):
    with pytest.raises(InputError, match="--context must be a multiple of 4 from 8 on"):
        task_of(context=context, batch=1)


@pytest.mark.slow
def test_run_writes_a_readable_log(tmp_path, capsys):
    run = tmp_path / "run"
    assert main(["train", "--task", "induction", "--out", str(run), *SMALL]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.endswith("checkpoint.npz, loss.png\n")
    log = read_log(run / "log.jsonl")
    assert [line["step"] for line in log] == [1, 2]
    assert sum(name.startswith("loss_at_") for name in log[-1]) == 16


def test_evaluation_prints_a_short_line(tmp_path, capsys):
    trained_by_command("--task=induction", "--out", tmp_path / "run", *SMALL)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("step ")]
    assert len(lines) == 2
    for line in lines:
        assert len(line) < 160
        assert "val_loss_second" in line
        assert "loss_at" not in line
        assert "copying" not in line


def test_report_compares_both_halves_with_guessing_and_names_the_best_heads(tmp_path):
    trainer, figures = trained(tmp_path, "induction", context=16, d_model=16, heads=2, steps=2)
    with Workers(1) as workers:
        report = trainer.task.report(trainer.model, np.random.default_rng(0), workers)
    assert f"{math.log(64):.3f}" in report
    ids = trainer.task.test[0][:1]
    predicted = trainer.model.forward(ids)[0][0].argmax(-1)
    assert f"prediction  {symbols(predicted[8:])}\n" in report
    assert f"input       {symbols(ids[0, 8:])}\n" in report
    assert report.endswith(f"target      {symbols(trainer.task.test[1][0, 8:])}")
    assert f"{figures['val_loss_first']:.3f}" in report
    assert f"{figures['val_loss_second']:.3f}" in report
    for kind in ("prefix_matching", "previous_token", "copying"):
        scores = {name: value for name, value in figures.items() if name.startswith(kind)}
        block, head = max(scores, key=scores.get).split(".")[2::2]
        assert f"{max(scores.values()):.3f}   block {block}, head {head}" in report
