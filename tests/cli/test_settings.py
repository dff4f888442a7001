"""What `train` is told: settings that would do nothing are refused."""

import dataclasses
import json

import pytest

from numpy_attention.errors import InputError
from numpy_attention.runs.config import TrainConfig
from numpy_attention.runs.trainer import Trainer
from numpy_attention.tasks import TASKS
from tests.cli.commands import last_lines, refused, text

__all__ = ["text"]


@pytest.mark.parametrize(("arguments", "said"), [
    (["--task=reverse", "--text=/nonexistent"], "--text is for --task text, and here that is reverse; leave it out"),
    (["--task=sum", "--text=t.txt"], "--text is for --task text, and here that is sum"),
    (["--task=digits", "--vocabulary=byte"], "--vocabulary is for --task text, and here that is digits"),
    (["--vocab-size=300"], "--vocab-size is for --vocabulary bpe, and here that is char"),
    (["--task=copy", "--vocab-size=300"], "--vocab-size is for --vocabulary bpe, and here that is char"),
    (["--optimizer=sgd", "--beta2=0.5"], "--beta2 is for --optimizer adamw or adam, and here that is sgd"),
    (["--task=sum", "--weight-decay=0.5"], "--weight-decay is for --optimizer adamw, and here that is adam"),
    (["--min-learning-rate=1"], "--min-learning-rate must be at most --learning-rate, the peak, which is 0.004, got 1"),
    (["--task=dates", "--from=smollm2", "--text=t.txt"], "--text is for --task text, and here that is dates"),
], ids=lambda one: " ".join(one) if isinstance(one, list) else "")
@pytest.mark.parametrize("place", ["options", "file"])
def test_a_setting_that_would_do_nothing_is_refused_wherever_it_is_given(
    tmp_path, monkeypatch, capsys, arguments, said, place
):
    monkeypatch.chdir(tmp_path)
    if place == "file":
        settings = [one.removeprefix("--").split("=") for one in arguments]
        lines = [f"{name.replace('-', '_')} = {v if v[0].isdigit() else json.dumps(v)}" for name, v in settings]
        (tmp_path / "run.toml").write_text("\n".join(lines))
        arguments = ["--config", "run.toml"]
    assert said in refused(capsys, "train", *arguments)
    assert not (tmp_path / "runs").exists()


@pytest.fixture
def begun(monkeypatch):
    """The configurations of runs that would begin; none does."""
    configs = []

    def run(trainer):
        configs.append(trainer.config)
        raise InputError("enough")

    monkeypatch.setattr(Trainer, "run", run)
    return configs


@pytest.mark.parametrize("task", [task for task in TASKS if task != "digits"])
def test_a_settings_file_may_hold_all_settings_with_their_usual_values(tmp_path, capsys, begun, task):
    for usual in (TrainConfig(), TrainConfig(task=task, **TASKS[task].defaults)):
        values = {name: value for name, value in dataclasses.asdict(usual).items() if value is not None}
        positions = TASKS[task].defaults.get("positions", "rotary")
        values |= {"task": task, "context": 40, "d_model": 8, "positions": positions}
        (tmp_path / "run.toml").write_text("\n".join(f"{name} = {json.dumps(one)}" for name, one in values.items()))
        assert "enough" in refused_late(capsys, "--config", tmp_path / "run.toml", "--out", tmp_path / "run")
    assert [config.task for config in begun] == [task] * 2


def refused_late(capsys, *arguments):
    return last_lines(capsys, 2, "train", *arguments).err


def test_a_peak_below_the_usual_end_of_the_cosine_stays_allowed(tmp_path, capsys, begun):
    for number, task in enumerate([[], ["--task=sum", "--as-in-the-lesson"]]):
        assert "enough" in refused_late(capsys, *task, "--learning-rate=1e-6", "--out", tmp_path / str(number))
    assert [config.learning_rate for config in begun] == [1e-6] * 2
    assert begun[0].min_learning_rate > 1e-6


def test_sizes_that_do_not_fit_are_told_by_their_options(tmp_path, text, capsys):
    even = "--d-model / --heads must be an even width per head for rotary positions, got 128 / 128"
    for heads, said in ((3, "--d-model must be divisible by --heads, got 128 and 3"), (128, even)):
        err = refused(capsys, "train", "--text", text, "--heads", heads, "--out", tmp_path / "run")
        assert err == f"numpy-attention: {said}\n"
    err = refused(capsys, "train", "--task=copy", "--positions=rotary", "--out", tmp_path / "run")
    assert err.startswith("numpy-attention: --positions must be one of ")
