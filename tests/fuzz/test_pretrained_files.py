"""Hostile files of pretrained models, in GGUF, safetensors and JSON: refused in one line, or a model that runs."""

import contextlib
import functools
import json
import math
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fuzz import processes
from tests.fuzz.attack import attack, tally
from tests.fuzz.directories import LETTER, REPLACEMENTS, replace
from tests.fuzz.processes import Child, folder, judge
from tests.pretrained import test_hostile_files as hostile
from tests.pretrained import tiny

os.environ["RUST_BACKTRACE"] = "0"  # a panic of the package `tokenizers` prints a few lines, not a hundred
pytestmark = processes.here
GGUF = ("llama gguf", "llama in Q8_0", "llama in Q4_1", "gpt2 gguf", "llama gguf in float16")
FOLDERS = ("llama", "llama in bfloat16", "llama in shards", "qwen2", "gpt2", "bert")
JSON = ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors.index.json")
SIZES = (-1, 0, 1, 2, 3, 10**4, 10**7, 2**31, 2**32 - 1, 2**63 - 1, 10**12, 10**30, 0.5, 1e308, True, None, "7", [7])
SEEDS = st.integers(0, 2**32)


@functools.cache
def honest(name: str) -> Path:
    """A tiny model in each format, written once."""
    return tiny.write(folder(), name)


@contextlib.contextmanager
def copied(name: str) -> Iterator[Path]:
    """A copy of the model, which will be damaged, in a folder with an unrelated file."""
    top = folder()
    path = top / honest(name).name
    try:
        if honest(name).is_dir():
            shutil.copytree(honest(name), path)
        else:
            shutil.copy(honest(name), path)
        (top / "letter").write_text(LETTER)
        yield path
        assert (top / "letter").read_text("utf-8") == LETTER
    finally:
        shutil.rmtree(top)


def tried(kind: str, name: str, spoil: Callable[[Path], None]) -> bool:
    """Damage a copy of the model and load it; return whether it was refused."""
    usual = peak(name)
    with copied(name) as path:
        spoil(path)
        refused = hostile.judge(hostile.outcome(path), usual)
    tally(f"pretrained: {kind}", "refused" if refused else "right")
    return refused


def told(kind: str, path: Path, command: str = "sample") -> None:
    """The output of the command line for a damaged model."""
    outcome = Child([command, path.name, "--tokens=1"], path.parent).outcome()
    tally(f"pretrained: {kind}", judge(outcome, {0, 2}))


@functools.cache
def peak(name: str) -> float:
    """The memory for loading the original file, after all imports."""
    hostile.outcome(honest(name))
    return hostile.outcome(honest(name))[-1]


def rewrite(path: Path, corrupt: Callable[..., bytes], seed: int, beginning: int | None = None) -> None:
    """Change bytes at the beginning of a file, or anywhere."""
    data = path.read_bytes()
    end = len(data) if beginning is None else beginning
    path.write_bytes(corrupt(data[:end], np.random.default_rng(seed)) + data[end:])


@attack(count=40)
@given(name=st.sampled_from(GGUF), kind=st.sampled_from(hostile.OF_GGUF), header=st.booleans(), seed=SEEDS)
def test_a_spoiled_gguf_file_is_refused_or_loads(
    name: str, kind: Callable[..., bytes], header: bool, seed: int
) -> None:
    def spoil(path: Path) -> None:
        data = path.read_bytes()
        end = data.rindex(b"output_norm") + 64 if b"output_norm" in data else len(data)
        if kind not in hostile.OF_GGUF[-2:] or "llama" in name:
            rewrite(path, kind, seed, end if header else None)

    tried("gguf", name, spoil)


@attack(count=40)
@given(
    name=st.sampled_from(FOLDERS), kind=st.sampled_from(hostile.OF_SAFETENSORS), header=st.booleans(), seed=SEEDS,
)  # fmt: skip
def test_a_spoiled_safetensors_file_is_refused_or_loads(
    name: str, kind: Callable[..., bytes], header: bool, seed: int
) -> None:
    def spoil(path: Path) -> None:
        files = sorted(path.glob("*.safetensors"))
        file = files[seed % len(files)]
        rewrite(file, kind, seed, 8 + int.from_bytes(file.read_bytes()[:8], "little") if header else None)

    tried("safetensors", name, spoil)


@attack(count=40)
@given(name=st.sampled_from(FOLDERS), file=st.sampled_from(JSON), kind=st.sampled_from(hostile.OF_JSON), seed=SEEDS)
def test_spoiled_json_is_refused_or_loads(
    name: str, file: str, kind: Callable[..., bytes], seed: int
) -> None:
    def spoil(path: Path) -> None:
        if (path / file).exists() and (path / file).stat().st_size > 10:
            rewrite(path / file, kind, seed)

    tried(file, name, spoil)


@attack(count=15)
@given(name=st.sampled_from(FOLDERS), which=st.integers(0, 40), value=st.sampled_from(SIZES))
@example(name="llama", which=17, value=2)
def test_an_extreme_setting_is_refused_or_the_model_runs(name: str, which: int, value: Any) -> None:
    def spoil(path: Path) -> None:
        settings = json.loads((path / "config.json").read_text("utf-8"))
        settings[sorted(settings)[which % len(settings)]] = value
        (path / "config.json").write_text(json.dumps(settings))

    tried("a setting", name, spoil)
    with copied(name) as path:
        spoil(path)
        told("a setting, by the command line", path)


@attack(count=4)
@given(at=st.integers(0, 10**6), number=st.sampled_from([math.nan, math.inf, -math.inf]))
@example(at=0, number=math.nan)
def test_a_weight_that_is_not_finite_is_refused(at: int, number: float) -> None:
    def spoil(path: Path) -> None:
        file = path / "model.safetensors"
        data = bytearray(file.read_bytes())
        start = 8 + int.from_bytes(data[:8], "little")
        place = start + at % ((len(data) - start) // 4) * 4
        data[place : place + 4] = struct.pack("<f", number)
        file.write_bytes(data)

    assert tried("not finite", "llama", spoil), f"{number} is taken as it is"


def step(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, **more}


BYTE_LEVEL = step("ByteLevel", add_prefix_space=True, trim_offsets=True, use_regex=False)
REPLACE = [
    step("Replace", pattern=pattern, content=content)
    for pattern in ({"String": "a"}, {"String": ""}, {"String": "\ufdfa"}, {"Regex": "x*"}, {"Regex": "(a+)+$"})
    for content in ("", "a", "\ufdfa", "a" * 10, "a" * 100_000)
]
SPECIAL_IDS = [[], [1], [1] * 50, [1] * 5000, [2**32 - 1]]
SINGLE = [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "x", "type_id": 0}}]
PARTS = {
    "normalizer": ("normalizers", [
        *REPLACE, *map(step, ("NFC", "NFKD", "NFKC", "Lowercase", "StripAccents", "Nmt", "ByteLevel")),
        step("Prepend", prepend="a"), step("Prepend", prepend="a" * 1000),
    ]),
    "pre_tokenizer": ("pretokenizers", [
        BYTE_LEVEL, step("Metaspace", replacement="\u2581", prepend_scheme="always", split=True),
        step("Digits", individual_digits=True), step("Whitespace"), step("FixedLength", length=1),
        step("Split", pattern={"Regex": "(a+)+$"}, behavior="Isolated", invert=False),
    ]),
    "decoder": ("decoders", [
        *REPLACE, BYTE_LEVEL, step("Fuse"), step("BPEDecoder", suffix=""), step("WordPiece", prefix="", cleanup=True),
        step("CTC", pad_token="", word_delimiter_token="", cleanup=True),
    ]),
    "post_processor": ("processors", [
        BYTE_LEVEL, step("RobertaProcessing", sep=["a", 2], cls=["b", 3], trim_offsets=True, add_prefix_space=True),
        *(
            step("TemplateProcessing", single=SINGLE * times, pair=SINGLE * times,
                 special_tokens={"x": {"id": "x", "ids": ids, "tokens": ["x"] * len(ids)}})
            for times in (1, 2, 40, 3000) for ids in SPECIAL_IDS
        ),
    ]),
}  # fmt: skip
STEPS_OF = {
    part: st.lists(st.tuples(st.sampled_from(steps), st.sampled_from([1, 1, 2, 7, 30])), max_size=3)
    for part, (_, steps) in PARTS.items()
}


@attack(count=30)
@given(
    steps=st.fixed_dictionaries({}, optional=STEPS_OF), letters=st.sampled_from(["a" * 40, "the rain \ufdfa", "é 1 a"])
)
@example(steps={"normalizer": [(REPLACE[3], 7)]}, letters="a" * 20)
@example(steps={"normalizer": [(REPLACE[6], 1)]}, letters="a")
@example(steps={"pre_tokenizer": [(BYTE_LEVEL, 30)]}, letters="é 1 a")
@example(steps={"post_processor": [(PARTS["post_processor"][1][-2], 1)]}, letters="a")
def test_steps_of_a_tokenizer_take_little_memory(steps: dict[str, Any], letters: str) -> None:
    with copied("llama") as path:
        about = json.loads((path / "tokenizer.json").read_text("utf-8"))
        for part, chosen in steps.items():
            about[part] = step("Sequence", **{PARTS[part][0]: [one for one, times in chosen for _ in range(times)]})
        (path / "tokenizer.json").write_text(json.dumps(about))
        arguments = ["sample", path.name, "--tokens=3", "--prompt", letters]
        outcome = Child(arguments, path.parent).outcome()
        panic = any(mark in outcome.err for mark in (b" panicked at ", b"Onig: Regex search error"))
        tally("pretrained: steps of a tokenizer", judge(outcome, {0, 2}, asides=panic))


@attack(count=15)
@given(
    key=st.sampled_from([
        *(f"tokenizer.ggml.{n}" for n in ("model", "pre", "tokens", "merges", "token_type", "bos_token_id")),
        "tokenizer.chat_template", "general.architecture", "general.alignment", "llama.block_count",
        "llama.rope.scaling.type", "llama.attention.sliding_window",
    ]),
    value=st.sampled_from([[1, 2, 3], [7], [0.5], ["gpt2"], ["a", "b"], "", "\0", 0, 2**31, -1, 1e30, True]),
)
@example(key="tokenizer.ggml.model", value=[1, 2, 3])
@example(key="tokenizer.ggml.pre", value=[7])
def test_a_setting_of_another_type_is_refused_or_the_model_runs(key: str, value: Any) -> None:
    top = folder()
    try:
        told("a setting of another type", with_setting(top, key, value))
    finally:
        shutil.rmtree(top)


def with_setting(top: Path, key: str, value: Any) -> Path:
    """A tiny GGUF file in which one setting has another value."""
    usual = tiny.add_tokenizer

    def added(writer: Any) -> None:
        usual(writer)
        writer.kv_data[0].pop(key, None)
        kinds = gguf.GGUFValueType
        one = value[0] if isinstance(value, list) else value
        kind = {str: kinds.STRING, bool: kinds.BOOL, int: kinds.INT64, float: kinds.FLOAT64}[type(one)]
        if isinstance(value, list):
            writer.add_key_value(key, value, kinds.ARRAY, sub_type=kind)
        else:
            writer.add_key_value(key, value, kind)

    tiny.add_tokenizer = added
    try:
        return tiny.write(top, "llama gguf")
    finally:
        tiny.add_tokenizer = usual


@attack(count=4)
@given(
    name=st.sampled_from(["llama", "llama gguf"]), by=st.sampled_from(sorted(REPLACEMENTS)),
    file=st.sampled_from([
        "config.json", "tokenizer.json", "model.safetensors", "tokenizer_config.json", "chat_template.jinja",
    ]),
    command=st.sampled_from(["sample", "chat"]),
)  # fmt: skip
@example(name="llama", by="a pipe", file="config.json", command="sample")
@example(name="llama", by="a link to /dev/zero", file="tokenizer.json", command="sample")
@example(name="llama", by="a pipe", file="model.safetensors", command="sample")
@example(name="llama gguf", by="a pipe", file="", command="sample")
@example(name="llama", by="a link to /proc/self/mem", file="chat_template.jinja", command="chat")
@example(name="llama gguf", by="a link to /dev/zero", file="", command="sample")
def test_a_model_path_that_is_not_a_file_is_refused(name: str, by: str, file: str, command: str) -> None:
    with copied(name) as path:
        if path.is_dir() and file == "chat_template.jinja":
            (path / "tokenizer_config.json").write_text("{}")
        replace(path / file if path.is_dir() else path, by)
        told("no file", path, command)
