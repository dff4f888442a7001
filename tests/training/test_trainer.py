"""A run: it learns, logs, resumes exactly, and stops at numbers that are not finite."""

import math
import os
import signal

import numpy as np
import pytest

from numpy_attention.app.tasks import TASKS, make_task
from numpy_attention.errors import InputError
from numpy_attention.training import c29_checkpoint as checkpoint
from numpy_attention.training.c32_trainer import NonFiniteError, Trainer
from numpy_attention.training.config import TrainConfig
from numpy_attention.training.log import read_log
from numpy_attention.training.tasks import copying, dates, digits, reverse, sums
from tests.training.small_runs import TINY, assert_same, before_step, log_without_times, resume, text, trainer
from tests.training.tasks.trained import synthetic_digits

__all__ = ["text"]
slow = pytest.mark.slow


def test_run_leaves_a_log_with_a_line_for_each_step_and_a_checkpoint(tmp_path, text):
    run = trainer(tmp_path / "run", text)
    run.run()
    log = read_log(tmp_path / "run" / "log.jsonl")
    assert [entry["step"] for entry in log] == list(range(1, 13))
    assert all(entry.keys() >= {"loss", "tokens_per_second", "learning_rate", "grad_norm"} for entry in log)
    assert [entry["step"] for entry in log if "val_loss" in entry] == [4, 8, 12]
    assert log[0]["learning_rate"] == pytest.approx(5e-3)
    assert log[-1]["learning_rate"] == pytest.approx(1e-4)
    arrays, meta = checkpoint.load_arrays(tmp_path / "run" / "checkpoint.npz")
    assert meta["step"] == 12
    assert meta["config"]["d_model"] == 16
    assert "".join(sorted(set("one fish two fish red fish blue fish. "))) == meta["task"]["characters"]
    for name, p in run.model.parameters().items():
        np.testing.assert_array_equal(arrays[f"parameters.{name}"].read(), p)
        assert arrays[f"optimizer.m.{name}"].shape == p.shape
    assert arrays["optimizer.steps"].read() == 12


@pytest.mark.parametrize(
    "settings",
    [
        {"dropout": 0.2, "recompute": True},
        {"optimizer": "adam", "accumulate": 2, "positions": "rotary"},
    ],
)
def test_run_stopped_by_a_signal_resumes_to_the_same_bits(tmp_path, text, settings):
    whole = trainer(tmp_path / "whole", text, **settings)
    assert whole.run() == "finished"

    parts = trainer(tmp_path / "parts", text, **settings)
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    before_step(parts, 6, lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert parts.run() == "SIGTERM"
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    assert parts.step == 7
    resumed = resume(tmp_path / "parts")
    assert resumed.step == 7
    assert resumed.run() == "finished"
    assert_same(whole, resumed)
    assert log_without_times(tmp_path / "parts") == log_without_times(tmp_path / "whole")
    assert resumed.best == whole.best


def test_second_signal_ends_the_run_at_once(tmp_path, text):
    run = trainer(tmp_path / "run", text)
    before_step(run, 5, lambda: [os.kill(os.getpid(), signal.SIGINT) for _ in range(2)])
    with pytest.raises(KeyboardInterrupt):
        run.run()
    assert run.step == 5
    assert resume(tmp_path / "run").step == 4  # the last best; nothing of step 6 is saved


def test_run_killed_after_its_last_checkpoint_repeats_the_lost_steps(tmp_path, text):
    whole = trainer(tmp_path / "whole", text)
    whole.run()
    def die():
        raise RuntimeError("as if killed")

    killed = trainer(tmp_path / "killed", text)
    before_step(killed, 11, die)
    with pytest.raises(RuntimeError, match="as if killed"):
        killed.run()
    assert read_log(tmp_path / "killed" / "log.jsonl")[-1]["step"] == 11  # logged, but last saved at step 9
    resumed = resume(tmp_path / "killed")
    assert resumed.step == 9
    resumed.run()
    assert_same(whole, resumed)
    assert log_without_times(tmp_path / "killed") == log_without_times(tmp_path / "whole")


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("optimizer", ["adamw", pytest.param("adam", marks=slow), pytest.param("sgd", marks=slow)])
def test_every_task_and_optimizer_resumes_bit_for_bit(tmp_path, text, task, optimizer, monkeypatch):
    monkeypatch.setattr(digits, "load_images", synthetic_digits)
    monkeypatch.setattr(reverse, "EXAMPLES", 500)
    for module in (copying, dates, reverse, sums):
        monkeypatch.setattr(module, "FRESH", 32)  # held-out examples
    sizes = TINY | {"context": 36, "batch": 4, "optimizer": optimizer, "dropout": 0.1}  # dates are 36 characters long
    sizes |= {"text": text} if task == "text" else {}
    if task in ("grpo", "dpo"):  # they start from a run, here on questions of one digit
        sizes |= {"context": 2, "batch": 64}
        start = TrainConfig(**(TASKS["answers"].defaults | sizes | {"task": "answers"}))
        (tmp_path / "start").mkdir()
        Trainer(start, make_task(start), tmp_path / "start").save()
        sizes |= {"from_": str(tmp_path / "start")}
    directory = tmp_path / "run"
    directory.mkdir()
    config = TrainConfig(**(TASKS[task].defaults | sizes | {"task": task}))
    whole = Trainer(config, make_task(config), tmp_path)
    part = Trainer(config, make_task(config), directory)
    with whole.workers:
        expected = [whole.one_step() for _ in range(4)]
    with part.workers:
        again = [part.one_step() for _ in range(2)]
    part.save()
    resumed = resume(directory)
    with resumed.workers:
        again += [resumed.one_step() for _ in range(2)]
    assert again == expected
    assert_same(whole, resumed)
    state = resumed.optimizer.state()
    for name, array in whole.optimizer.state().items():
        np.testing.assert_array_equal(state[name], array)


def test_run_resumes_from_the_previous_checkpoint_as_the_error_advises(tmp_path, text):
    trainer(tmp_path / "whole", text).run()
    run = trainer(tmp_path / "run", text)
    run.run()
    path = tmp_path / "run" / checkpoint.NAME
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match="to continue from the previous checkpoint, mv"):
        resume(tmp_path / "run")
    (tmp_path / "run" / checkpoint.PREVIOUS).replace(path)
    resumed = resume(tmp_path / "run")
    assert resumed.step == 9
    assert resumed.run() == "finished"
    assert_same(run, resumed)
    assert log_without_times(tmp_path / "run") == log_without_times(tmp_path / "whole")


def test_nan_stops_the_run_and_keeps_the_checkpoint(tmp_path, text):
    run = trainer(tmp_path / "run", text)
    run.save()
    before = (tmp_path / "run" / "checkpoint.npz").read_bytes()
    run.model.parameters()["blocks.0.attention.w_v"][0, 0] = np.nan
    run.step = 1  # a run that starts at step 0 saves first
    with pytest.raises(NonFiniteError, match=r"step 2.*blocks\.0\.attention\.w_v"):
        run.run()
    assert (tmp_path / "run" / "checkpoint.npz").read_bytes() == before


def test_checkpoints_are_written_on_schedule_and_the_best_and_the_previous_one_are_kept(tmp_path, text):
    run, saved = trainer(tmp_path / "run", text), []
    losses, save = iter([3.0, 1.0, 2.0]), run.save
    run.task.evaluate = lambda model, workers: {"val_loss": next(losses)}
    run.save = lambda: (saved.append(run.step), save())
    run.run()
    assert saved == [0, 3, 4, 6, 8, 9, 12]
    assert checkpoint.load_arrays(tmp_path / "run" / checkpoint.BEST)[1]["step"] == 8
    assert checkpoint.load_arrays(tmp_path / "run" / checkpoint.PREVIOUS)[1]["step"] == 9
    assert run.best == 1.0


def test_best_checkpoint_survives_a_kill_in_its_save(tmp_path, text, monkeypatch):
    run = trainer(tmp_path / "run", text)
    run.task.evaluate = lambda model, workers: {"val_loss": {4: 3.0, 8: 1.0, 12: 2.0}[run.step]}
    second_name = checkpoint._second_name

    def killed(path, name):
        if run.step == 8 and name == checkpoint.NAME:
            raise RuntimeError("as if killed")
        second_name(path, name)

    monkeypatch.setattr(checkpoint, "_second_name", killed)
    with pytest.raises(RuntimeError, match="as if killed"):
        run.run()
    monkeypatch.undo()
    run = resume(tmp_path / "run")
    assert (run.step, run.best) == (6, 3.0)
    run.task.evaluate = lambda model, workers: {"val_loss": {8: 1.0, 12: 2.0}[run.step]}
    assert run.run() == "finished"
    assert checkpoint.load_arrays(tmp_path / "run" / checkpoint.BEST)[1]["step"] == 8


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


def test_bad_steps_are_skipped_if_asked_and_logged_also_by_a_resumed_run(tmp_path, text, monkeypatch):
    bad = {1, 5, 9}
    whole = poison(trainer(tmp_path / "whole", text, skip_bad_steps=3), bad, monkeypatch)
    whole.run()
    assert whole.optimizer.steps == 9
    log = {entry["step"]: entry for entry in read_log(tmp_path / "whole" / "log.jsonl")}
    assert "the loss is nan" in log[6]["skipped"]
    assert "loss" not in log[6]
    part = poison(trainer(tmp_path / "part", text, skip_bad_steps=3), bad, monkeypatch)
    before_step(part, 7, lambda: setattr(part, "signal", "SIGINT"))
    assert part.run() == "SIGINT"
    resumed = poison(resume(tmp_path / "part"), bad, monkeypatch)
    assert resumed.skipped == 2
    assert resumed.run() == "finished"
    assert log_without_times(tmp_path / "part") == log_without_times(tmp_path / "whole")
    assert_same(whole, resumed)


def test_patience_stops_after_evaluations_without_a_new_best(tmp_path, text):
    run = trainer(tmp_path / "run", text, steps=100, patience=2, eval_every=2)
    losses = iter([3.0, 1.0, 2.0, 1.0, 0.5])
    run.task.evaluate = lambda model, workers: {"val_loss": next(losses)}
    assert run.run() == "stopped early"
    assert run.step == 8
