"""Damaged and hostile checkpoints: each one loads, or is refused in one line, quickly and with little memory."""

import json
import os
import struct
import time
import tracemalloc

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.errors import InputError
from tests.pretrained import tiny
from tests.training.corruptions import OF_ANY_FILE, spoil_somewhere

SECONDS = 20  # time limit for work that takes a hundredth of it, because the machine may be busy
HUGE = (2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1)


def huge(data, rng):
    """Replace 8 bytes by a huge number: as a length, a count, a size or an offset it is impossible."""
    at = int(rng.integers(len(data) - 8))
    return data[:at] + struct.pack("<Q", HUGE[rng.integers(len(HUGE))]) + data[at + 8 :]


def huge_at_the_beginning(data, rng):
    """`huge` in the first 32 bytes, which hold the counts of a GGUF file and the length of a safetensors header."""
    return huge(data[:32], rng) + data[32:]


def strange_kind(data, rng):
    """Replace the kind of a setting's value, so that everything after it is misread."""
    names = [i for i in range(len(data) - 20) if data.startswith((b"llama.", b"tokenizer.", b"general."), i)]
    at = names[rng.integers(len(names))]
    end = at + int.from_bytes(data[at - 8 : at], "little")
    return data[:end] + struct.pack("<I", int(rng.integers(0, 14))) + data[end + 4 :]


def strange_number(data, rng):
    """Replace a setting of 4 bytes, or a size or the kind of a tensor."""
    names = [i for i in range(len(data) - 20) if data.startswith((b"llama.", b"blk.", b"output", b"token_embd"), i)]
    at = names[rng.integers(len(names))]
    end = at + int.from_bytes(data[at - 8 : at], "little") + 4 * int(rng.integers(0, 7))
    value = [0, 1, 5, 30, 10**9, 2**32 - 1, 0x7FC00000, 0xFF800000][rng.integers(8)]
    return data[:end] + struct.pack("<I", value) + data[end + 4 :]


def wrong_value(data, rng):
    """Replace a value somewhere in the JSON by a senseless one, or remove it."""
    found = json.loads(data)
    spoil_somewhere(found, rng)
    return json.dumps(found).encode()


def deep(data, rng):
    """Add nested JSON lists, as deep as a reader can go or deeper."""
    depth = int(rng.integers(100, 2000))
    return data[:1] + b'"deep": ' + b"[" * depth + b"]" * depth + b"," + data[1:]


OF_GGUF = (*OF_ANY_FILE, huge, huge_at_the_beginning, strange_kind, strange_number)
OF_SAFETENSORS = (*OF_ANY_FILE, huge, huge_at_the_beginning)
OF_JSON = (*OF_ANY_FILE, wrong_value, deep)


def outcome(path):
    """The error message or the model; the seconds; and the peak memory."""
    tracemalloc.start()
    start = time.perf_counter()
    try:
        try:
            found = na.load_pretrained(path)
        except InputError as error:
            found = str(error)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return found, time.perf_counter() - start, peak


def judge(result, honest_peak):
    """Check that the file was refused in one line, or that its model runs; with limited time and memory. Return whether
    the file was refused."""
    found, seconds, peak = result
    assert seconds < SECONDS
    assert peak < 2 * honest_peak + 1_000_000
    if isinstance(found, str):
        assert "\n" not in found
        assert len(found) < 6000
        return True
    model, tokenizer = found
    ids = tokenizer.encode("the rain")
    assert all(0 <= i < model.config.vocab_size for i in [*ids, *tokenizer.stop])
    with np.errstate(all="ignore"):  # a flipped bit can turn a weight into any number
        y, _ = model.forward(np.array([[3, 0, 1]])[:, : model.config.context_length])
    assert y.shape[-1] in (model.config.vocab_size, model.config.d_model)
    return False


def assert_each_is_refused_or_loads(path, file, corruptions, beginning, count, rng):
    """Each trial corrupts the first `beginning` bytes of the file, with one of the corruptions and a new generator."""
    whole = file.read_bytes()
    for corrupt in corruptions:  # the first error of each kind may import a module
        file.write_bytes(corrupt(whole[:beginning], rng) + whole[beginning:])
        outcome(path)
    file.write_bytes(whole)
    honest = outcome(path)
    assert not judge(honest, honest[-1])
    refused = dict.fromkeys(corruptions, 0)
    for trial, draws in enumerate(rng.spawn(count)):
        corrupt = corruptions[trial % len(corruptions)]
        file.write_bytes(corrupt(whole[:beginning], draws) + whole[beginning:])
        refused[corrupt] += judge(outcome(path), honest[-1])
    return refused


COUNTS = [24, pytest.param(120, marks=pytest.mark.slow)]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", ["llama gguf", "llama in Q4_1", "gpt2 gguf", "llama 3 as gguf", "gemma3_text as gguf"])
def test_gguf_file_with_corrupted_header_is_refused_in_one_line_or_loads(name, count, tmp_path, rng):
    path = tiny.write(tmp_path, name)
    whole = path.read_bytes()
    header = whole.rindex(b"output_norm") + 64 if b"output_norm" in whole else len(whole)
    kinds = OF_GGUF if "llama" in name else OF_GGUF[:-2]
    refused = assert_each_is_refused_or_loads(path, path, kinds, header, count, rng)
    assert sum(refused.values()) > count / 2
    assert min(refused.values()) > 0


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", ["llama in bfloat16", "bert"])
def test_safetensors_file_with_corrupted_header_is_refused_in_one_line_or_loads(name, count, tmp_path, rng):
    path = tiny.write(tmp_path, name)
    file = path / "model.safetensors"
    header = 8 + int.from_bytes(file.read_bytes()[:8], "little")
    refused = assert_each_is_refused_or_loads(path, file, OF_SAFETENSORS, header, count, rng)
    assert sum(refused.values()) > 0.7 * count
    assert min(refused.values()) > 0


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(
    "name", ["gpt2", "qwen2", "bert", "llama 3", "qwen3 with yarn", "smollm3 with a list", "gemma3_text nested"]
)
@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "tokenizer_config.json"])
def test_corrupted_json_is_refused_in_one_line_or_loads(name, file, count, tmp_path, rng):
    path = tiny.write(tmp_path, name)
    size = len((path / file).read_bytes())
    if file == "tokenizer_config.json" and size < 10:
        return  # this file of a BERT is empty
    if file != "config.json" and name not in ("gpt2", "qwen2", "bert"):
        return  # these files are the same for each GPT
    refused = assert_each_is_refused_or_loads(path, path / file, OF_JSON, size, count, rng)
    assert sum(refused.values()) > count / 4


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("llama", {"num_hidden_layers": 10**9}), ("llama", {"vocab_size": 10**12}), ("llama", {"vocab_size": 10**7}),
        ("llama", {"intermediate_size": 10**7}), ("llama", {"hidden_size": 6 * 10**6}),
        ("llama", {"num_hidden_layers": 10**4}), ("gpt2", {"n_positions": 10**7}), ("gpt2", {"n_layer": 10**6}),
        ("bert", {"type_vocab_size": 10**7}), ("bert", {"max_position_embeddings": 10**7}),
        ("qwen3", {"head_dim": 10**6}), ("gemma3_text", {"head_dim": 2**24}), ("smollm3", {"num_hidden_layers": 2**24}),
        ("smollm3 with a list", {"num_hidden_layers": 2**24}), ("gemma3_text nested", {"num_hidden_layers": 2**24}),
        ("bert", {"hidden_size": 3 * 10**6}), ("llama", {"max_position_embeddings": 10**12}),
    ],
    ids=str,
)  # fmt: skip
def test_refuses_a_model_larger_than_the_file_before_building_it(name, change, tmp_path):
    path = tiny.write(tmp_path, name)
    honest = outcome(path)
    settings = json.loads((path / "config.json").read_text("utf-8"))
    (path / "config.json").write_text(json.dumps(settings | change))
    found, seconds, peak = outcome(path)
    assert isinstance(found, str)
    [(key, value)] = change.items()
    assert f"{key} is {value}" in found or "its settings describe" in found
    assert seconds < SECONDS
    assert peak < honest[-1] + 100_000


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("filling", ["[],", "[", "1,", " "])
def test_refuses_json_of_many_megabytes_before_parsing_it(file, filling, tmp_path):
    path = tiny.write(tmp_path, "llama")
    honest = outcome(path)
    (path / file).write_text('{"a": [' + filling * (12 * 2**20 // len(filling)))
    found, seconds, peak = outcome(path)
    assert isinstance(found, str)
    assert file in found
    assert len(found) < 500
    assert seconds < SECONDS
    assert peak < honest[-1] + 1_000_000


def test_a_long_list_in_a_settings_file_takes_little_memory(tmp_path):
    path = tiny.write(tmp_path, "llama")
    settings = (path / "config.json").read_text("utf-8")
    (path / "config.json").write_text(settings[:-1] + ', "id2label": [' + "[]," * 2 * 10**5 + "[]]}")
    found, seconds, peak = outcome(path)
    assert not isinstance(found, str)
    assert seconds < SECONDS
    assert peak < 30_000_000


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
def test_error_names_a_tensor_that_holds_nan_or_infinity(value, kind, tmp_path):
    tensors = tiny.tensors_of("llama", tiny.LLAMA)
    tensors["model.layers.1.mlp.up_proj.weight"][3, 2] = value
    found, *_ = outcome(tiny.write_folder(tmp_path / "wrong", tiny.LLAMA, tensors, kind=kind))
    assert "model.layers.1.mlp.up_proj.weight holds numbers that are not finite" in found


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes exist only on Unix")
@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"])
def test_refuses_a_pipe_in_a_folder_without_waiting(tmp_path, name):
    folder = tiny.write(tmp_path, "llama")
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with pytest.raises(InputError, match="it is not a regular file"):
        na.load_pretrained(folder)
    if name.endswith(".safetensors"):
        with pytest.raises(InputError, match="it is not a regular file"):
            na.import_safetensors(folder / name)
