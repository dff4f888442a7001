"""Load a run from its directory: the description of a checkpoint is compared with its arrays."""

import math

import numpy as np
import pytest

from numpy_attention.errors import InputError
from numpy_attention.files import save_arrays
from numpy_attention.training import checkpoint
from numpy_attention.training.restore import HowFar, checkpoint_path, how_far, load_run, text_model
from tests.training.small_runs import resume, text, trainer

__all__ = ["text"]
META = {"step": 3, "seconds": 1.5, "best": None, "best_step": 0, "since_best": 2, "skipped": 1}


def test_progress_is_read_as_it_was_saved():
    assert how_far(META, 3) == HowFar(3, 1.5, math.inf, 0, 2, 1)
    assert how_far(META | {"best": 0.5}, 9).best == 0.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step": 4}, "step 4 of 3"), ({"skipped": -1}, "step 3 of 3"), ({"seconds": math.inf}, "inf seconds"),
        ({"best": math.nan}, "best nan"), ({"best_step": "x"}, "invalid literal"), ({"since_best": None}, "NoneType"),
    ],
)
def test_refuses_impossible_progress(change, message):
    with pytest.raises(InputError, match=f"holds no valid progress of the run: .*{message}"):
        how_far(META | change, 3)
    with pytest.raises(InputError, match="no valid progress"):
        how_far({}, 3)


def test_checkpoint_is_found_by_directory_or_file(tmp_path):
    with pytest.raises(InputError, match="there is no directory"):
        checkpoint_path(tmp_path / "none")
    with pytest.raises(InputError, match=r"holds no checkpoint\.npz"):
        checkpoint_path(tmp_path)
    path = tmp_path / checkpoint.NAME
    path.write_bytes(b"")
    assert checkpoint_path(tmp_path) == checkpoint_path(path) == path


def test_text_model_is_restored_with_its_vocabulary(tmp_path, text):
    run = trainer(tmp_path / "run", text)
    run.run()
    config, arrays, meta = load_run(tmp_path / "run")
    model, vocabulary = text_model(arrays, meta)
    assert config.to_mapping() == run.config.to_mapping()
    assert vocabulary.saved() == run.task.vocabulary.saved()
    for name, p in run.model.parameters().items():
        np.testing.assert_array_equal(model.parameters()[name], p)


def saved(run):
    """The checkpoint of a new run: its path, its arrays and its description."""
    run.save()
    path = run.directory / checkpoint.NAME
    return path, *checkpoint.load_arrays(path)


@pytest.mark.parametrize("key", ["config", "model", "task", "step"])
def test_refuses_description_with_a_missing_part_and_names_it(tmp_path, text, key):
    path, arrays, meta = saved(trainer(tmp_path / "run", text))
    save_arrays(path, arrays, meta | {key: None})
    with pytest.raises(InputError, match=f"its description has no '{key}'"):
        load_run(tmp_path / "run")


@pytest.mark.parametrize("name", ["layers", "d_ff", "context"])
def test_refuses_description_of_more_parameters_than_the_file_holds(tmp_path, text, name):
    run = trainer(tmp_path / "run", text, positions="learned")
    path, arrays, meta = saved(run)
    c = run.config
    of_one = {"layers": c.d_model * max(c.d_model, c.d_ff), "d_ff": c.layers * c.d_model, "context": c.d_model}[name]
    of_the_rest = {"context": c.layers * c.d_model * max(c.d_model, c.d_ff)}.get(name, c.context * c.d_model)
    most = (sum(array.size for array in arrays.values()) - of_the_rest) // of_one
    for value in (most, most + 1):
        save_arrays(path, arrays, meta | {"config": meta["config"] | {name: value}})
        if value == most:
            assert getattr(load_run(path)[0], name) == most
        else:
            with pytest.raises(InputError, match="its sizes do not fit its arrays"):
                load_run(path)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("optimizer.steps", -1, "its optimizer has taken -1 steps, but the run has taken 12, of which 0 were skipped"),
        ("optimizer.steps", 2**62, f"its optimizer has taken {2**62} steps"),
        ("optimizer.v.norm.gamma", -1.0, r"optimizer\.v\.norm\.gamma, a mean of squares, holds -1\.0"),
        ("optimizer.m.norm.gamma", math.nan, r"optimizer\.m\.norm\.gamma holds nan at \[0\]"),
        ("parameters.norm.gamma", -math.inf, r"parameters\.norm\.gamma holds -inf at \[0\]"),
    ],
)
def test_refuses_impossible_state_of_the_optimizer(tmp_path, text, name, value, message):
    trainer(tmp_path / "run", text).run()
    path = tmp_path / "run" / checkpoint.NAME
    arrays, meta = checkpoint.load_arrays(path)
    save_arrays(path, arrays | {name: np.full_like(arrays[name], value)}, meta)
    with pytest.raises(InputError, match=message):
        resume(tmp_path / "run")


@pytest.mark.parametrize("kind", [np.int8, np.float32, np.complex64])
def test_refuses_state_of_another_optimizer(tmp_path, text, kind):
    path, arrays, meta = saved(trainer(tmp_path / "run", text))
    save_arrays(path, arrays | {"optimizer.steps": arrays["optimizer.steps"].astype(kind)}, meta)
    with pytest.raises(InputError, match=r"steps is|not numbers in C order"):
        resume(tmp_path / "run")
