"""Load a run from its directory: the description of a checkpoint is compared with its arrays."""

import numpy as np
import pytest

from numpy_attention.errors import InputError
from numpy_attention.files import save_arrays
from numpy_attention.training import c29_checkpoint as checkpoint
from numpy_attention.training.restore import checkpoint_path, load_run, text_model
from tests.training.small_runs import resume, text, trainer

__all__ = ["text"]


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
    arrays, meta = checkpoint.load_arrays(path)
    return path, {name: array.read() for name, array in arrays.items()}, meta


@pytest.mark.parametrize(("part", "name", "value", "message"), [
    ("model", "rotary_base", "x", "rotary_base must be float, got a str"),
    ("model", "d_model", 10**9, "do not fit its arrays"),
    ("model", "num_heads", 3, "divisible"),
    ("task", "vocabulary", "word", "not the description of a vocabulary"),
])  # fmt: skip
def test_refuses_description_of_another_model(tmp_path, text, part, name, value, message):
    _, arrays, meta = load_run(saved(trainer(tmp_path / "run", text))[0])
    with pytest.raises(InputError, match=message):
        text_model(arrays, meta | {part: meta[part] | {name: value}})


def test_refuses_arrays_that_are_not_finite_or_belong_to_another_optimizer(tmp_path, text):
    path, arrays, meta = saved(trainer(tmp_path / "run", text))
    save_arrays(path, arrays | {"parameters.norm.gamma": np.full(16, np.inf, np.float32)}, meta)
    with pytest.raises(InputError, match=r"parameters\.norm\.gamma holds inf at \[0\]"):
        resume(tmp_path / "run")
    save_arrays(path, arrays, meta | {"config": meta["config"] | {"optimizer": "sgd"}})
    with pytest.raises(InputError, match="the checkpoint does not fit the optimizer"):
        resume(tmp_path / "run")
