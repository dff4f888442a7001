"""Chapter 33, continued: folders with one file or with shards, in three number formats; and incomplete folders."""

import json

import numpy as np
import pytest

from numpy_attention.errors import InputError
from numpy_attention.pretrained.c33a_folders import read_folder, read_pooling
from tests.pretrained import tiny


def arrays_of(found):
    return {name: stored.read() for name, stored in found.items()}


def refusal(path):
    with pytest.raises(InputError) as caught:
        read_folder(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def whole(tmp_path):
    return tiny.write_folder(tmp_path / "whole", tiny.LLAMA, tiny.tensors_of("whole", tiny.LLAMA))


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
def test_read_folder_gives_settings_and_numbers(kind, shards, tmp_path):
    tensors = tiny.tensors_of("some", tiny.QWEN2)
    settings, found = read_folder(tiny.write_folder(tmp_path / "some", tiny.QWEN2, tensors, kind, shards))
    assert settings == tiny.QWEN2
    assert found.keys() == tensors.keys()
    for name, array in arrays_of(found).items():
        assert (found[name].dtype, found[name].shape) == (kind, tensors[name].shape)
        bound = {"F32": 0.0, "F16": 2.0**-11, "BF16": 2.0**-8}[kind]  # of rounding
        np.testing.assert_allclose(array, tensors[name], rtol=bound, atol=1e-7 if bound else 0.0)


def test_bfloat16_is_the_upper_half_of_float32(tmp_path):
    """Values that bfloat16 can hold are read exactly: infinities, the smallest and largest number, negative zero."""
    bits = np.array([0x0000, 0x8000, 0x3F80, 0xC049, 0x7F80, 0xFF80, 0x0001, 0x7F7F], "<u2")
    path = tmp_path / "model.safetensors"
    header = json.dumps({"w": {"dtype": "BF16", "shape": [2, 4], "data_offsets": [0, 16]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bits.tobytes())
    (tmp_path / "config.json").write_text("{}")
    array = arrays_of(read_folder(tmp_path)[1])["w"]
    expected = np.array([0.0, -0.0, 1.0, -3.140625, np.inf, -np.inf, 2.0**-133, 3.3895314e38], np.float32)
    np.testing.assert_array_equal(array, expected.reshape(2, 4))
    assert np.signbit(array[0, 1])


def test_a_pickle_is_not_read_and_the_error_says_how_to_convert_it(whole):
    (whole / "model.safetensors").unlink()
    assert "No such file" in refusal(whole)
    for name in ("pytorch_model.bin", "pytorch_model-00001-of-00002.bin"):
        (whole / name).write_bytes(b"1")
        begin = f"{whole / name} is a pickle, which can run code, and is not read; convert it: python -c"
        assert refusal(whole).startswith(begin)
        (whole / name).unlink()


@pytest.mark.parametrize(("about", "expected"), [
    (None, "mean"), ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "first_token"),
    ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, "mean"),
    ({"pooling_mode": "cls"}, "first_token"),
])  # fmt: skip
def test_the_file_of_the_pooling_says_how_a_vector_is_made(about, expected, tmp_path):
    if about is not None:
        (tmp_path / "1_Pooling").mkdir()
        (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(about))
    assert read_pooling(tmp_path) == expected


def one(**changes):
    return {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | changes}
