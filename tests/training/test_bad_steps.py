"""Steps with a NaN: skipped if asked, and always recorded."""

import math

import numpy as np
import pytest

from numpy_attention.training import checkpoint
from numpy_attention.training.log import read_log
from numpy_attention.training.trainer import NonFiniteError
from tests.training.small_runs import before_step, log_without_times, resume, text, trainer

__all__ = ["text"]


def poison(run, steps, monkeypatch):
    """A run in which the batches of these steps make the model fail once."""
    draw, loss = run.task.batch, run.model.loss
    state = {"step": -1}

    def batch(rng):
        state["step"] = run.step
        return draw(rng)

    def poisoned(*arguments, **options):
        value, cache = loss(*arguments, **options)
        return (value * np.float32(math.nan) if state["step"] in steps else value), cache

    monkeypatch.setattr(run.task, "batch", batch)
    monkeypatch.setattr(run.model, "loss", poisoned)
    return run


def test_bad_step_changes_nothing_and_is_logged(tmp_path, text, monkeypatch):
    run = poison(trainer(tmp_path / "run", text, skip_bad_steps=2, log_every=5), {3, 7}, monkeypatch)
    before = {}
    step_once = run.one_step

    def step():
        parameters = {name: p.copy() for name, p in run.model.parameters().items()}
        result = step_once()
        if run.fault:
            before[run.step] = parameters, {name: p.copy() for name, p in run.model.parameters().items()}
        return result

    monkeypatch.setattr(run, "one_step", step)
    assert run.run() == "finished"
    assert before.keys() == {4, 8}
    for old, new in before.values():
        for name, p in old.items():
            np.testing.assert_array_equal(new[name], p)
    log = {entry["step"]: entry for entry in read_log(tmp_path / "run" / "log.jsonl")}
    assert "the loss is nan" in log[4]["skipped"]
    assert "loss" not in log[4]
    assert "val_loss" in log[8]
    assert run.optimizer.steps == 10
    assert checkpoint.load_arrays(tmp_path / "run" / "checkpoint.npz")[1]["skipped"] == 2


def test_too_many_bad_steps_end_the_run(tmp_path, text, monkeypatch):
    run = poison(trainer(tmp_path / "run", text, skip_bad_steps=2), {3, 5, 7}, monkeypatch)
    with pytest.raises(NonFiniteError, match="step 8: the loss is nan"):
        run.run()


def test_resumed_run_remembers_skipped_steps(tmp_path, text, monkeypatch):
    bad = {1, 5, 9}
    whole = poison(trainer(tmp_path / "whole", text, skip_bad_steps=3), bad, monkeypatch)
    whole.run()
    part = poison(trainer(tmp_path / "part", text, skip_bad_steps=3), bad, monkeypatch)
    before_step(part, 7, lambda: setattr(part.signals, "name", "SIGINT"))
    assert part.run() == "SIGINT"
    resumed = poison(resume(tmp_path / "part"), bad, monkeypatch)
    assert resumed.skipped == 2
    assert resumed.run() == "finished"
    assert log_without_times(tmp_path / "part") == log_without_times(tmp_path / "whole")
    for name, p in whole.model.parameters().items():
        np.testing.assert_array_equal(resumed.model.parameters()[name], p)


def test_best_checkpoint_survives_a_kill_right_after_the_save(tmp_path, text, monkeypatch):
    run = trainer(tmp_path / "run", text)
    losses = iter([3.0, 1.0, 2.0])
    run.task.evaluate = lambda model, workers: {"val_loss": next(losses)}
    keep = checkpoint.keep_as

    def killed(path, name):
        if name == checkpoint.BEST and run.step == 8:
            raise RuntimeError("as if killed")
        keep(path, name)

    monkeypatch.setattr(checkpoint, "keep_as", killed)
    with pytest.raises(RuntimeError, match="as if killed"):
        run.run()
    monkeypatch.undo()
    assert checkpoint.load_arrays(tmp_path / "run" / checkpoint.BEST)[1]["step"] == 4
    resumed = resume(tmp_path / "run")
    assert resumed.step == 8
    resumed.task.evaluate = run.task.evaluate
    assert resumed.run() == "finished"
    assert checkpoint.load_arrays(tmp_path / "run" / checkpoint.BEST)[1]["step"] == 8
