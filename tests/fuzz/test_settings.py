"""Settings files: real keys with all kinds of TOML values, and nearly invalid TOML; used, or refused in one line."""

import json
from dataclasses import fields

from hypothesis import example, given
from hypothesis import strategies as st

from numpy_attention.runs.config import TrainConfig
from tests.fuzz import processes, worlds
from tests.fuzz.attack import attack, tally

pytestmark = processes.here
NAMES = [field.name.rstrip("_") for field in fields(TrainConfig)]
CHOICES = sorted({choice for field in fields(TrainConfig) for choice in field.metadata["choices"] or ()})
DEEP = 30_000
GOOD = {name: json.dumps(value) for name, value in worlds.SMALL.items()}
NUMBERS = [
    "-1", "0", "1", "2", "3", "0.5", "1.0", "nan", "-nan", "inf", "-inf", "1e308", "1e400", "5e-324", "-0.0", "0x10",
    "0b1", "1_00", str(2**31), str(2**62), str(2**63 - 1), str(2**63), "-" + str(2**63), "9" * 5000, "99999999999999",
    "0.1e-99999",
]
TEXTS = [
    '"x"', '""', '"a\\u0000b"', '"\\ud800"', '"text.txt"', '"missing"', '"/dev/null"', '"."', '"/proc"', '"fifo"',
    '"latin.txt"', '"empty.txt"', '"pic.png"', '"run"', '"folder"', '"broken"', f'"{"n" * 300}"', f'"{"n" * 100_000}"',
    '"ほ\\u202e"', "'''a\nb'''", '"smollm2"', '"minilm"', '"\\u001b[31m"', *(f'"{choice}"' for choice in CHOICES),
]
OTHERS = [
    "true", "false", "[]", '["text"]', "{}", "{a = 1}", "[[1, 2], [3]]", "1979-05-27", "07:32:00",
    "1979-05-27T07:32:00Z", "[" * 100 + "]" * 100, "[" * DEEP + "]" * DEEP, "{a = " * 50 + "1" + "}" * 50, "[nan]",
    "", "x", "=", '"', "TRUE", "+1", "[" + "1," * 1000 + "]",
]
KEYS = [
    *NAMES, "from", "learning-rate", "Steps", "nope", "lora-alpha", '""', '"a b"', "ほ", '"\\u0000"', '"\\u202e"',
    "a.b", "task.x", ".".join("a" * 50), ".".join("a" * 2000), ".".join("a" * 100_000), "k" * 5000, "from_", "workers ",
    '"\\n"', "__class__", "to_mapping", "''",
]
RAW = [
    b"\xff\xfe", b"\xef\xbb\xbf", b"\0", b"\r\n", b"[train]", b"[[a]]", b"# only words", b"steps", b"= 1",
    b"\xed\xa0\x80", b"[a" + b".a" * 5_000 + b"]", b"x" * 2**20, b"# " + b"x" * (2**20 + 1),
    b"a = [" * 20_000, b"\x85", b"\x1b[31m",
]


def good(given: dict[str, str]) -> dict[str, str]:
    """The small sizes, and a text unless another task may be chosen."""
    return {name: one for name, one in GOOD.items() if name != "text" or "task" not in given}


@st.composite
def settings_files(draw: st.DrawFn) -> bytes:
    """Small sizes, some replaced by odd values, and sometimes an arbitrary line."""
    value = st.sampled_from(NUMBERS) | st.sampled_from(TEXTS) | st.sampled_from(OTHERS) | st.integers().map(str)
    given = draw(st.dictionaries(st.sampled_from(NAMES) | st.sampled_from(KEYS), value, max_size=2))
    lines = [f"{name} = {one}" for name, one in {**good(given), **given}.items()]
    if draw(st.integers(0, 9)) == 0:
        lines.append(draw(st.sampled_from(lines)))
    file = "\n".join(lines).encode()
    if draw(st.integers(0, 4)) == 0:
        at = draw(st.sampled_from([0, len(file) // 2, len(file)]))
        return file[:at] + b"\n" + draw(st.sampled_from(RAW) | st.binary(max_size=20)) + b"\n" + file[at:]
    return file


def written(**given: str) -> bytes:
    """A settings file with small sizes; the given values in TOML replace some of them."""
    return "\n".join(f"{name} = {one}" for name, one in {**good(given), **given}.items()).encode()


@attack(count=15)
@given(settings_files())
@example(written(text='"a\\u0000b"'))
@example(written(weight_decay="1e308"))
@example(written(**{".".join("a" * 300_000): "1"}))
def test_a_settings_file_is_used_or_refused_in_one_line(file: bytes) -> None:
    with worlds.copy_of_the_world() as top:
        (top / "work" / "odd.toml").write_bytes(file)
        tally("settings", worlds.tried(["train", "--config", "odd.toml", "--out", "new"], top))
