"""Chapter 33: GGUF files are read like with the package gguf; and invalid files are refused."""

import os
import struct

import gguf
import numpy as np
import pytest

from numpy_attention.errors import InputError
from numpy_attention.pretrained.gguf_files import MAX_HEADER, read_gguf
from tests.pretrained import tiny
from tests.pretrained.absent import without

FORMS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
QUANTIZED = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "BF16"]


def text(value):
    raw = value if isinstance(value, bytes) else value.encode()
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


def read(tmp_path, raw):
    path = tmp_path / "made.gguf"
    path.write_bytes(raw)
    return read_gguf(path)


def refusal(tmp_path, raw):
    with pytest.raises(InputError) as caught:
        read(tmp_path, raw)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'made.gguf'} is damaged or not a GGUF file (")
    assert "\n" not in message
    assert len(message) < 600
    return message


@pytest.mark.parametrize("name", [name for name in tiny.CASES if " gguf" in name or " Q" in name])
def test_settings_and_tensors_equal_those_of_the_package(name, tmp_path):
    path = tiny.write(tmp_path, name)
    settings, arrays = read_gguf(path)
    reader = gguf.GGUFReader(path)
    theirs = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    assert settings.keys() == theirs.keys()
    for key, value in settings.items():
        assert (value.tolist() if isinstance(value, np.ndarray) else value) == theirs[key], key
    assert list(arrays) == [tensor.name for tensor in reader.tensors]
    for t in reader.tensors:
        shape, kind, read = arrays[t.name]
        assert (shape, kind) == (tuple(int(size) for size in reversed(t.shape)), t.tensor_type.name)
        assert read is not None
        array = read()
        assert (array.shape, array.dtype) == (shape, np.float32)
        np.testing.assert_array_equal(array, gguf.dequantize(t.data, t.tensor_type).reshape(shape))


@pytest.mark.parametrize("kind", FORMS)
def test_reads_every_kind_of_number_alone_and_in_a_list(kind, tmp_path, rng):
    form = FORMS[kind]
    dtype = np.dtype(form.replace("B", "u1").replace("b", "i1"))
    values = rng.integers(0, 2, 7).astype(dtype) if dtype.kind == "b" else (90 * rng.random(7)).astype(dtype)
    one = setting("one", kind, struct.pack(form, values[3].item()))
    raw = b"".join(struct.pack(form, value) for value in values.tolist())
    many = setting("many", 9, struct.pack("<IQ", kind, 7) + raw)
    settings, _ = read(tmp_path, made([one, many]))
    assert settings["one"] == values[3]
    assert type(settings["one"]) is type(values[3].item())
    np.testing.assert_array_equal(settings["many"], values)


def test_reads_texts_alone_and_in_a_list(tmp_path):
    words = ["", "Zürich", "a b", "<|im_end|>"]
    raw = struct.pack("<IQ", 8, len(words)) + b"".join(map(text, words))
    settings, arrays = read(tmp_path, made([setting("one", 8, text("ö\n")), setting("many", 9, raw)]))
    assert settings == {"one": "ö\n", "many": words}
    assert arrays == {}


@pytest.mark.parametrize("version", [2, 3])
def test_numbers_start_at_a_multiple_of_the_alignment(version, tmp_path, rng):
    numbers = rng.standard_normal((3, 5)).astype("<f4")
    aligned = setting("general.alignment", 4, struct.pack("<I", 256))
    head = made([aligned], [tensor("w", (5, 3), 0, 64)], version=version)
    raw = head + bytes(-len(head) % 256) + bytes(64) + numbers.tobytes()
    _, arrays = read(tmp_path, raw)
    assert arrays["w"].shape == (3, 5)
    np.testing.assert_array_equal(arrays["w"].read(), numbers)


@pytest.mark.parametrize("kind", QUANTIZED)
def test_any_number_of_blocks_is_dequantized(kind, tmp_path, rng):
    """The reader joins rows for speed; the number of joined rows divides the number of blocks."""
    chosen = gguf.GGMLQuantizationType[kind]
    for rows, columns in ((1, 32), (7, 96), (512, 64)):
        x = rng.uniform(-1.0, 1.0, (rows, columns)).astype(np.float32)
        packed = gguf.quantize(x, chosen)
        _, arrays = read(tmp_path, made([], [tensor("w", (columns, rows), chosen)], packed.tobytes()))
        found = arrays["w"].read()
        np.testing.assert_array_equal(found, gguf.dequantize(packed, chosen))
        assert np.abs(found - x).max() < 0.13  # numbers from -1 to 1 in 4 bits


DAMAGED = {
    "a wrong magic": (made(magic=b"GGML"), "begins with b'GGML' and version 3"),
    "a wrong version": (made(version=1), "version 1"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "version 50331648"),
    "only a magic": (b"GGUF", "goes beyond its end"),
    "2^63 tensors": (made(counts=(2**63, 0)), "it claims 9223372036854775808 tensors and 0 settings"),
    "missing tensors": (made(counts=(60_000, 0)), "goes beyond its end"),
    "2^64 - 1 settings": (made(counts=(0, 2**64 - 1)), "it claims 0 tensors and 18446744073709551615 settings"),
    "missing settings": (made(counts=(0, 60_000)), "goes beyond its end"),
    "a text of 2^62 bytes": (made([struct.pack("<Q", 2**62)]), "goes beyond its end"),
    "a list of 2^60 numbers": (made([setting("a", 9, struct.pack("<IQ", 0, 2**60))]), "goes beyond its end"),
    "a list of 2^60 texts": (made([setting("a", 9, struct.pack("<IQ", 8, 2**60))]), "goes beyond its end"),
    "a list of lists": (made([setting("a", 9, struct.pack("<IQIQ", 9, 1, 9, 1))]), "unknown kind 9"),
    "an unknown kind": (made([setting("a", 13, bytes(8))]), "unknown kind 13"),
    "the same setting twice": (made([setting("a", 0, b"1"), setting("a", 0, b"1")]), "'a' appears twice"),
    "invalid UTF-8": (made([setting(b"\xff\xfe", 0, b"1")]), "utf-8"),
    "the same tensor twice": (made([], [tensor("w", (2,)), tensor("w", (2,))], bytes(8)), "'w' appears twice"),
    "no dimension": (made([], [tensor("w", ())]), "'w' has 0 dimensions"),
    "five dimensions": (made([], [tensor("w", (1,) * 5)]), "'w' has 5 dimensions"),
    "a tensor of no numbers": (made([], [tensor("w", (0, 2**62))]), "does not fit into the file"),
    "a tensor of 2^124 numbers": (made([], [tensor("w", (2**62, 2**62))], bytes(64)), "does not fit into the file"),
    "a tensor beyond the end": (made([], [tensor("w", (9,))], bytes(35)), "does not fit into the file"),
    "an offset beyond the end": (made([], [tensor("w", (2,), 0, 2**63)], bytes(64)), "does not fit into the file"),
    "half a block": (made([], [tensor("w", (48,), 8)], bytes(96)), "does not fit into the file"),
    "nine tensors at the same offset": (
        made([], [tensor(f"w{i}", (64,)) for i in range(9)], bytes(256)), "claim 2304 bytes in a file of",
    ),
    "two tensors at the same offset": (
        made([], [tensor("a", (256,)), tensor("b", (256,))], bytes(1024)), "claim 2048 bytes in a file of",
    ),
    "an alignment of 0": (made([setting("general.alignment", 4, bytes(4))]), "alignment"),
    "an alignment that is a text": (made([setting("general.alignment", 8, text("32"))]), "alignment"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_refuses_an_invalid_gguf_file(name, tmp_path):
    raw, expected = DAMAGED[name]
    assert expected in refusal(tmp_path, raw)


def test_refuses_a_header_above_the_size_limit(tmp_path):
    """A text as long as the limit, which is really in the file."""
    path = tmp_path / "made.gguf"
    with open(path, "wb") as file:
        file.write(made([setting("a", 8, struct.pack("<Q", MAX_HEADER))]))
        file.truncate(MAX_HEADER + 2**20)
    with pytest.raises(InputError, match="goes beyond its end"):
        read_gguf(path)


def test_refuses_empty_files_missing_files_directories_and_pipes(tmp_path):
    path = tmp_path / "empty.gguf"
    path.write_bytes(b"")
    with pytest.raises(InputError, match="it is empty"):
        read_gguf(path)
    with pytest.raises(InputError, match=r"cannot read .*: No such file"):
        read_gguf(tmp_path / "none.gguf")
    with pytest.raises(InputError, match="not a regular file"):
        read_gguf(tmp_path)
    if hasattr(os, "mkfifo"):  # opening a pipe without a writer must not wait
        os.mkfifo(tmp_path / "pipe.gguf")
        with pytest.raises(InputError, match="not a regular file"):
            read_gguf(tmp_path / "pipe.gguf")


def test_error_without_the_package_says_what_to_install(tmp_path, monkeypatch):
    path = tiny.write(tmp_path, "llama gguf")
    without(monkeypatch, "gguf")
    with pytest.raises(InputError, match=r"^GGUF files need the package gguf: pip install gguf$"):
        read_gguf(path)
