"""A damaged model file of any kind gives one line, or loads exactly the numbers that it holds; no code in it is run.

A safetensors file and a GGUF file have no checksum. So a changed bit in the numbers of a tensor cannot be noticed: the
model then holds the changed number, and the test compares it with the number that the package of the format reads.
"""

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
    "safetensors": ("llama", "model.safetensors"),
    "config": ("gemma3_text", "config.json"), "config with experts": ("qwen3_moe", "config.json"),
    "tokenizer": ("gpt2", "tokenizer.json"),
    "tokenizer of a bert": ("bert", "tokenizer.json"), "tokenizer config": ("qwen2", "tokenizer_config.json"),
}  # fmt: skip


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    at = tmp_path_factory.mktemp("damaged")
    return {name: tiny.write(at, name) for name in dict(CASES.values())}


def numbers_in(path):
    """The tensors, read by the package of the format."""
    if path.is_dir():
        return safetensors.numpy.load_file(path / "model.safetensors")
    tensors = gguf.GGUFReader(path).tensors
    return {t.name: gguf.dequantize(t.data, t.tensor_type).reshape(t.shape[::-1]) for t in tensors}


def check(path, file, whole, damage):
    """Damage the file and load the checkpoint."""
    target = path / file if file else path
    target.write_bytes(damage(whole))
    try:
        model, tokenizer = na.load_pretrained(path)
    except InputError as error:
        message = str(error)
    else:
        message = ""
    if message:
        assert "\n" not in message
        assert str(path) in message
        return
    ids = tokenizer.encode("the rain")
    assert all(0 <= i < model.config.vocab_size for i in [*ids, *tokenizer.stop])
    assert all(np.isfinite(p).all() for p in model.parameters().values())
    _, arrays = read_folder(path) if file else read_gguf(path)
    expected = numbers_in(path)
    assert arrays.keys() == expected.keys()
    for name, stored in arrays.items():
        np.testing.assert_array_equal(stored.read(), expected[name])


@pytest.mark.parametrize("name", CASES)
def test_a_damaged_file_gives_one_line_or_loads_the_numbers_that_it_holds(name, checkpoints):
    path, file = checkpoints[CASES[name][0]], CASES[name][1]
    target = path / file if file else path
    whole = target.read_bytes()

    @settings(max_examples=8, database=None)
    @given(DAMAGES)
    def check_one(damage):
        check(path, file, whole, damage)

    try:
        check_one()
    finally:
        target.write_bytes(whole)
    assert "NUMPY_ATTENTION_WAS_RUN" not in os.environ
