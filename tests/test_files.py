"""Models in files: what comes back is what was saved, and what is not whole is refused in one line."""

import json
import zipfile

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.errors import InputError
from numpy_attention.files import load_arrays, save_arrays
from tests.models.gradients import randomized
from tests.models.twin_cases import CLASSES, MODELS, make


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_comes_back_as_it_was(name, dtype, rng, tmp_path):
    config = MODELS[name]
    model = randomized(CLASSES[type(config)](config, None, dtype), rng)
    model.save(tmp_path / "model.npz")
    loaded = type(model).load(str(tmp_path / "model.npz"))
    assert loaded.config == config
    for key, p in loaded.parameters().items():
        assert p.dtype == dtype
        assert p.flags.writeable
        np.testing.assert_array_equal(p, model.parameters()[key])
    batch = make(name)[1][0]
    assert loaded.loss(*batch)[0] == model.loss(*batch)[0]


def test_the_file_is_a_plain_npz_without_pickle(tmp_path):
    model, _ = make("gpt")
    model.save(tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz", allow_pickle=False) as file:
        np.testing.assert_array_equal(file["parameters.norm.gamma"], model.norm.gamma)
        assert json.loads(file["meta"].tobytes())["model"]["d_model"] == model.config.d_model


def test_a_file_of_another_class_or_size_is_refused(tmp_path):
    path = tmp_path / "model.npz"
    make("gpt")[0].save(path)
    with pytest.raises(InputError, match=r"holds a GPT, not a Seq2Seq; load it with GPT.load"):
        na.Seq2Seq.load(path)
    arrays, meta = load_arrays(path)
    for change, message in [
        ({"vocab_size": 8}, r"token_embedding.table is float64 \(7, 8\), expected float64 \(8, 8\)"),
        ({"d_model": 10**9}, "its sizes are not those of its arrays"),
        ({"num_layers": 10**9}, "its sizes are not those of its arrays"),
        ({"num_heads": 3}, "d_model must be divisible by num_heads"),
        ({"colour": "red"}, "unexpected keyword argument 'colour'"),
    ]:
        save_arrays(path, arrays, {**meta, "model": {**meta["model"], **change}})
        with pytest.raises(InputError, match=message):
            na.GPT.load(path)


def test_a_damaged_or_missing_file_is_refused_in_one_line(tmp_path):
    path = tmp_path / "model.npz"
    with pytest.raises(InputError, match="there is no checkpoint"):
        na.GPT.load(path)
    make("gpt")[0].save(path)
    whole = path.read_bytes()
    for cut in (0, 10, len(whole) // 2, len(whole) - 30):
        path.write_bytes(whole[:cut])
        with pytest.raises(InputError) as error:
            na.GPT.load(path)
        assert "\n" not in str(error.value)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("meta.npy", b"not an array")
    with pytest.raises(InputError):
        na.GPT.load(path)
