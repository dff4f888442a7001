"""Chapter 33, continued: folders with one file or with shards, in three number formats; and incomplete folders."""

import json

import numpy as np
import pytest

from numpy_attention.errors import InputError
from numpy_attention.pretrained.c33a_folders import read_folder, read_json, read_pooling
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


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_error_for_a_missing_file(name, whole):
    (whole / name).unlink()
    assert refusal(whole).startswith(f"cannot read {whole / name}: No such file or directory")


@pytest.mark.parametrize("names", [None, {"a": 5}])
def test_refuses_an_index_without_file_names(names, whole):
    (whole / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    assert "index.json does not list safetensors files: " in refusal(whole)


def test_a_pickle_is_not_read_and_the_error_says_how_to_convert_it(whole):
    (whole / "model.safetensors").unlink()
    assert "No such file" in refusal(whole)
    for name in ("pytorch_model.bin", "pytorch_model-00001-of-00002.bin"):
        (whole / name).write_bytes(b"1")
        begin = f"{whole / name} is a pickle, which can run code, and is not read; convert it: python -c"
        assert refusal(whole).startswith(begin)
        (whole / name).unlink()


def test_error_for_parts_without_their_table_and_for_an_adapter(whole):
    (whole / "model.safetensors").rename(whole / "model-00001-of-00002.safetensors")
    assert refusal(whole) == f"{whole} has parts of a model, but lacks their table, model.safetensors.index.json"
    (whole / "config.json").rename(whole / "adapter_config.json")
    assert refusal(whole).startswith(f"{whole} holds low-rank changes of another program; merge them into their model")


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


@pytest.mark.parametrize(("about", "said"), [
    ({"pooling_mode_max_tokens": True}, "pooling_mode_max_tokens"), ({}, "nothing"),
    ({"pooling_mode": "lasttoken"}, "lasttoken"),
    ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, "cls_token and pooling_mode_mean_tokens"),
])  # fmt: skip
def test_refuses_another_pooling_and_one_more_layer(about, said, tmp_path):
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(about))
    with pytest.raises(InputError, match=f"{said}.*, supported is pooling_mode_mean_tokens or"):
        read_pooling(tmp_path)
    (tmp_path / "2_Dense").mkdir()
    with pytest.raises(InputError, match="2_Dense is one more layer on the vector of a text"):
        read_pooling(tmp_path)


def test_an_index_names_files_of_its_own_folder_only(whole):
    (whole / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "/etc/passwd"}}))
    assert refusal(whole).startswith(f"cannot read {whole / 'passwd'}: No such file")


@pytest.mark.parametrize("raw", [b"", b"{", b"[1]", b"\xff\xfe{}", b"[" * 100_000], ids=range(5))
def test_refuses_files_without_a_json_object(raw, tmp_path):
    path = tmp_path / "config.json"
    path.write_bytes(raw)
    with pytest.raises(InputError, match=r"config.json (is not readable JSON|does not hold a JSON object)"):
        read_json(path)


def safetensors_file(header, numbers, length=None):
    raw = json.dumps(header).encode()
    return (len(raw) if length is None else length).to_bytes(8, "little") + raw + numbers


def one(**changes):
    return {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | changes}


CLAIMS = {  # each file claims more than it holds
    "empty": b"",
    "2^80 numbers": safetensors_file(one(shape=[2**40, 2**40]), bytes(8)),
    "offsets that do not fit the shape": safetensors_file(one(data_offsets=[0, 12]), bytes(12)),
    "a shape that no array can have": safetensors_file(one(shape=[1] * 70 + [2]), bytes(8)),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_refuses_an_invalid_safetensors_file(name, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(CLAIMS[name])
    assert "model.safetensors is damaged or not a safetensors file: " in refusal(tmp_path)
