"""`train` when the training is over: what cannot be drawn or written, and who interrupts, leave it complete."""

import errno
import os
import signal
import time

import pytest

from numpy_attention import plots
from numpy_attention.app import train
from numpy_attention.training import plot
from numpy_attention.training.tasks.text import TextTask
from tests.app.commands import last_lines, run_directory, text

__all__ = ["run_directory", "text"]


@pytest.fixture(autouse=True)
def short_report(monkeypatch):
    """The report about the model does not matter here."""
    monkeypatch.setattr(TextTask, "report", lambda *_: "the report")


def test_unwritable_picture_gives_one_warning_and_the_training_completes(run_directory, capsys):
    (run_directory / "loss.png").mkdir()
    out, err = last_lines(capsys, 0, "train", "--resume", run_directory)
    assert err == "numpy-attention: there is no picture of the losses, loss.png: it is not a regular file\n"
    assert out.splitlines()[-1] == f"in {run_directory}: log.jsonl, config.json, checkpoint.npz"


@pytest.mark.parametrize(
    ("error", "message"),
    [(OSError(errno.ENOSPC, "No space left on device"), "No space left on device"), (MemoryError(), "MemoryError"),
     (RuntimeError("a\nb" * 1000), "a ba b")],
)
def test_errors_of_matplotlib_become_one_warning(run_directory, capsys, monkeypatch, error, message):
    def failing(*arguments):
        raise error

    monkeypatch.setattr(plots, "training_curves", failing)
    err = last_lines(capsys, 0, "train", "--resume", run_directory).err
    assert message in err
    assert err.count("\n") == 1
    assert len(err) < 500


@pytest.mark.parametrize(
    ("module", "place"), [(plots, "training_curves"), (plot, "read_log"), (train, "_finish")]
)
def test_ctrl_c_at_the_end_prints_one_line_and_the_training_is_saved(run_directory, capsys, monkeypatch, module, place):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, place, interrupted)
    err = last_lines(capsys, 130, "train", "--resume", run_directory).err
    assert err.count("\n") == 1
    assert "stopped by SIGINT; the training is complete and saved" in err
    assert f"train --resume {run_directory}" in err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_during_drawing_is_not_an_error(
    run_directory, capsys, monkeypatch, number, code
):
    def importing(*arguments):
        try:
            os.kill(os.getpid(), number)
            time.sleep(0.01)
        except BaseException:  # as Python does where a class is made
            raise RuntimeError("Error calling __set_name__") from None
        return draw(*arguments)

    draw = plots.training_curves
    monkeypatch.setattr(plots, "training_curves", importing)
    out, err = last_lines(capsys, code, "train", "--resume", run_directory)
    assert (run_directory / "loss.png").exists()
    assert ", loss.png" in out
    assert err.count("\n") == 1
    assert f"stopped by {number.name}; the training is complete and saved" in err


def test_unwritable_result_is_an_error_that_names_the_command_to_repeat(run_directory, capsys, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(TextTask, "write_result", full)
    err = last_lines(capsys, 2, "train", "--resume", run_directory).err
    assert err.count("\n") == 1
    again = f"free some space, then python -m numpy_attention train --resume {run_directory}"
    assert f"No space left on device; the training is complete and saved: {again}" in err
