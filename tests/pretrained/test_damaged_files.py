"""A damaged model file of any kind gives one line, or loads exactly the numbers that it holds; no code in it is run.

A safetensors file and a GGUF file have no checksum. So a changed bit in the numbers of a tensor cannot be noticed: the
model then holds the changed number, and the test compares it with the number that the package gguf, or NumPy with the
offsets of the header, finds at this place. Our own `.npz` files have checksums (tests of `files.py`).
"""

import json
import os
import pickle

import gguf
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

import numpy_attention as na
from numpy_attention.errors import InputError
from numpy_attention.pretrained.c33_gguf_files import read_gguf
from numpy_attention.pretrained.c33a_folders import read_folder
from tests.models.twin_cases import make
from tests.pretrained import tiny


class Code:
    """An object whose pickle runs code when it is loaded."""

    def __reduce__(self):
        return exec, ("import os; os.environ['NUMPY_ATTENTION_WAS_RUN'] = 'yes'",)


FOREIGN = [b"", b"\0" * 400, b"[]", b"{}", b"GGUF", b"GGUF" + b"\xff" * 400, b"\x89PNG\r\n\x1a\n" + b"1" * 400,
           pickle.dumps(Code()), (8).to_bytes(8, "little") + b'{"w": 1}']  # fmt: skip


def flipped(changes):
    def damage(raw):
        found = bytearray(raw)
        for place, bits, near in changes:  # near the beginning there is the header
            found[place % (min(len(raw), 3000) if near else len(raw))] ^= bits
        return bytes(found)

    return damage


DAMAGES = st.one_of(
    st.lists(st.tuples(st.integers(0, 2**24), st.integers(1, 255), st.booleans()), min_size=1, max_size=3).map(flipped),
    st.integers(0, 2**24).map(lambda place: lambda raw: raw[: place % len(raw)]),
    st.sampled_from(FOREIGN).map(lambda found: lambda raw: found),
)
CASES = {  # a checkpoint, and the file in it that is damaged; "" for a GGUF file
    "gguf": ("llama gguf", ""), "gguf in Q4_1": ("llama in Q4_1", ""), "gpt2 gguf": ("gpt2 gguf", ""),
    "safetensors": ("llama", "model.safetensors"), "bfloat16": ("llama in bfloat16", "model.safetensors"),
    "config": ("gemma3_text", "config.json"), "tokenizer": ("gpt2", "tokenizer.json"),
    "tokenizer of a bert": ("bert", "tokenizer.json"), "tokenizer config": ("qwen2", "tokenizer_config.json"),
}  # fmt: skip


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    at = tmp_path_factory.mktemp("damaged")
    return {name: tiny.write(at, name) for name in dict(CASES.values())}


def in_gguf(path):
    """The tensors, read by the package gguf."""
    tensors = gguf.GGUFReader(path).tensors
    return {t.name: gguf.dequantize(t.data, t.tensor_type).reshape(t.shape[::-1]) for t in tensors}


def in_safetensors(path):
    """The tensors, read with the offsets of the header."""
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    found = {}
    for name, about in json.loads(raw[8:start]).items():
        if name != "__metadata__":
            first, last = about["data_offsets"]
            numbers = np.frombuffer(raw[start + first : start + last], {"F32": "<f4", "BF16": "<u2"}[about["dtype"]])
            wide = (numbers.astype("<u4") << 16).view("<f4") if about["dtype"] == "BF16" else numbers
            found[name] = wide.reshape(about["shape"])
    return found


def loaded_or_refused(load, path):
    """What `load` returns, or None if it refuses the file in one line."""
    try:
        return load(path)
    except InputError as error:
        message = str(error)
    assert "\n" not in message
    assert str(path) in message
    return None


def check(path, file, whole, damage):
    """Damage the file and load the checkpoint."""
    target = path / file if file else path
    target.write_bytes(damage(whole))
    if (found := loaded_or_refused(na.load_pretrained, path)) is None:
        return
    model, tokenizer = found
    ids = tokenizer.encode("the rain")
    assert all(0 <= i < model.config.vocab_size for i in [*ids, *tokenizer.stop])
    assert all(np.isfinite(p).all() for p in model.parameters().values())
    _, arrays = read_folder(path) if file else read_gguf(path)
    expected = in_safetensors(path / "model.safetensors") if file else in_gguf(path)
    assert arrays.keys() == expected.keys()
    for name, stored in arrays.items():
        np.testing.assert_array_equal(stored.read(), expected[name])


def damaged_often(count, name, checkpoints):
    path, file = checkpoints[CASES[name][0]], CASES[name][1]
    target = path / file if file else path
    whole = target.read_bytes()
    try:
        settings(max_examples=count, database=None)(given(DAMAGES)(lambda damage: check(path, file, whole, damage)))()
    finally:
        target.write_bytes(whole)
    assert "NUMPY_ATTENTION_WAS_RUN" not in os.environ


@pytest.mark.parametrize("name", CASES)
def test_a_damaged_file_gives_one_line_or_loads_the_numbers_that_it_holds(name, checkpoints):
    damaged_often(8, name, checkpoints)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_many_damaged_files_give_one_line_or_load_the_numbers_that_they_hold(name, checkpoints):
    damaged_often(150, name, checkpoints)


@settings(max_examples=20)
@given(DAMAGES)
def test_a_damaged_file_of_export_safetensors_gives_one_line_or_loads(tmp_path_factory, damage):
    model, _ = make("gpt")
    path = tmp_path_factory.mktemp("ours") / "model.safetensors"
    na.export_safetensors(model, path)
    path.write_bytes(damage(path.read_bytes()))
    if (loaded := loaded_or_refused(na.import_safetensors, path)) is not None:
        arrays = safetensors.numpy.load_file(path)
        assert arrays.keys() == loaded.parameters().keys()
        for name, p in loaded.parameters().items():
            np.testing.assert_array_equal(p, arrays[name])
