"""Chapter 33: GGUF files are read like with the package gguf; a part of a file and another byte order are refused."""

import struct

import gguf
import numpy as np
import pytest

from numpy_attention.errors import InputError
from numpy_attention.pretrained.c33_gguf_files import read_gguf
from tests.pretrained import tiny


def text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def setting(name, kind, raw):
    return text(name) + struct.pack("<I", kind) + raw


def tensor(name, sizes, kind=0, place=0):
    return text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, place)


def made(settings=(), tensors=(), numbers=b"", magic=b"GGUF", version=3, counts=None):
    """A file, built from the definition at the start of the chapter."""
    num_tensors, num_settings = counts or (len(tensors), len(settings))
    head = magic + struct.pack("<IQQ", version, num_tensors, num_settings) + b"".join([*settings, *tensors])
    return head + bytes(-len(head) % 32) + numbers


@pytest.mark.parametrize("name", [name for name in tiny.CASES if " gguf" in name or " Q" in name])
def test_settings_and_tensors_equal_those_of_the_package(name, tmp_path):
    path = tiny.write(tmp_path, name)
    settings, arrays = read_gguf(path)
    reader = gguf.GGUFReader(path)
    assert settings == {n: field.contents() for n, field in reader.fields.items() if not n.startswith("GGUF.")}
    assert list(arrays) == [tensor.name for tensor in reader.tensors]
    for t in reader.tensors:
        shape, kind, read = arrays[t.name]
        assert (shape, kind) == (tuple(int(size) for size in reversed(t.shape)), t.tensor_type.name)
        array = read()
        assert (array.shape, array.dtype) == (shape, np.float32)
        np.testing.assert_array_equal(array, gguf.dequantize(t.data, t.tensor_type).reshape(shape))


def test_reads_a_file_written_from_the_definition(tmp_path, rng):
    words, numbers = ["", "Zürich", "<|im_end|>"], rng.standard_normal((3, 5)).astype("<f4")
    settings = [
        setting("general.alignment", 4, struct.pack("<I", 256)),
        setting("text", 8, text("ö\n")),
        setting("texts", 9, struct.pack("<IQ", 8, 3) + b"".join(map(text, words))),
        setting("numbers", 9, struct.pack("<IQ3h", 3, 3, 5, -7, 9)),
        setting("yes", 7, b"\1"),
    ]
    head = made(settings, [tensor("w", (5, 3), 0, 64)], version=2)
    (tmp_path / "made.gguf").write_bytes(head + bytes(-len(head) % 256) + bytes(64) + numbers.tobytes())
    found, arrays = read_gguf(tmp_path / "made.gguf")
    assert found == {"general.alignment": 256, "text": "ö\n", "texts": words, "numbers": [5, -7, 9], "yes": True}
    np.testing.assert_array_equal(arrays["w"].read(), numbers)


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "BF16"])
def test_numbers_of_each_format_are_dequantized(kind, tmp_path, rng):
    chosen = gguf.GGMLQuantizationType[kind]
    x = rng.uniform(-1.0, 1.0, (7, 96)).astype(np.float32)
    (tmp_path / "a.gguf").write_bytes(made([], [tensor("w", (96, 7), chosen)], gguf.quantize(x, chosen).tobytes()))
    found = read_gguf(tmp_path / "a.gguf")[1]["w"].read()
    assert np.abs(found - x).max() < 0.13  # numbers from -1 to 1 in 4 bits


def uint16(name, number):
    return setting(name, 2, struct.pack("<H", number))


@pytest.mark.parametrize(("raw", "message"), [
    (made([uint16("split.no", 0), uint16("split.count", 2)]), "it is part 1 of 2; join them with llama-gguf-split"),
    (made([uint16("split.count", 3), uint16("split.no", 2)]), "it is part 3 of 3"),
    (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "its numbers are big-endian, which cannot be read here"),
], ids=["the first part", "the last part", "big-endian"])  # fmt: skip
def test_error_for_a_part_of_a_file_and_for_another_byte_order(raw, message, tmp_path):
    """Without this check, a first part without the tensor of the head would be a model with tied weights."""
    path = tmp_path / "made.gguf"
    path.write_bytes(raw)
    with pytest.raises(InputError, match=f"made.gguf cannot be read as a GGUF file: {message}"):
        read_gguf(path)
    path.write_bytes(made([uint16("split.count", 1)]))
    assert read_gguf(path)[0] == {"split.count": 1}
