"""Values arrive unchanged; a line that is not a message, or is too large, is refused before it is used."""

import io
import json
from typing import Any

import numpy as np
import pytest

from numpy_attention.grade.wire import MAX_LINE, Encoder, InvalidMessage, Reference, decode, read_line
from tests.every import each

STORED = {4: "what is stored"}


def through(value: Any) -> Any:
    return decode(Encoder({"value": value}).line, STORED.__getitem__)[0]["value"]


@each([None, True, 3, -2, 0.1, float("inf"), "text", (1, [2.5, None], {"w": (3,)}), (), {}, np.float32, np.float64])
def test_plain_values_arrive_unchanged(value: Any) -> None:
    assert through(value) == value
    assert type(through(value)) is type(value)


@pytest.mark.parametrize("shape", [(2, 3, 5), (), (0, 4), (1,)])
def test_arrays_arrive_to_the_last_bit(rng: np.random.Generator, shape: tuple[int, ...]) -> None:
    for dtype in ("bool", "int8", "uint64", "float16", "float32", "longdouble", "complex128", ">f8", ">i4"):
        sent = np.array(100 * rng.random(shape)).astype(dtype)
        came = through([sent, sent.swapaxes(0, -1) if sent.ndim else sent, sent[..., :1] if sent.ndim else sent])
        assert np.array_equal(came[0], sent)
        assert came[0].shape == shape
        assert came[0].dtype == np.dtype(dtype).newbyteorder("=")
        assert came[0].flags.writeable
        assert np.array_equal(came[1], sent.swapaxes(0, -1) if sent.ndim else sent)


def test_repeated_array_arrives_as_one_array() -> None:
    x = np.ones(3)
    one, other, copied = through([x, (x,), x.copy()])
    assert one is other[0]
    assert one is not copied


def test_nan_and_signed_zeros_arrive_too() -> None:
    sent = np.array([np.nan, -0.0, np.inf])
    assert through(sent).tobytes() == sent.tobytes()
    assert np.isnan(through(float("nan")))


def test_both_processes_count_the_same_arrays_and_generators() -> None:
    x, rng = np.ones(2), np.random.default_rng(0)
    sent = Encoder({"value": [np.float32(0.1), x, rng, (x, rng), np.zeros(3), Reference(4)]})
    message, mutables = decode(sent.line, STORED.__getitem__)
    kinds = [np.ndarray, np.random.Generator, np.ndarray]
    assert [type(one) for one in mutables] == [type(one) for one in sent.mutables] == kinds
    number, first, second, again, third, stored = message["value"]
    assert [id(one) for one in (first, second, third)] == [id(one) for one in mutables]
    assert first is again[0]
    assert second is again[1]
    assert type(number) is np.float32
    assert stored == STORED[4]
    assert [one.number for one in sent.references] == [4]


def test_a_generator_draws_the_same_numbers() -> None:
    rng = np.random.default_rng(5)
    rng.random(3)
    assert through(rng).random() == rng.random()


@each([
    ({1, 2}, "set"), (print, "builtin_function_or_method"), (np.array([None]), "array of object"), (1j, "complex"),
    (np.array(["a"]), "array of <U1"), (1 << 70, "int"), (np.str_, "type"),
])
def test_value_of_another_type_arrives_as_name_of_its_type(pair: tuple[Any, str]) -> None:
    assert type(through(pair[0])).__name__ == pair[1]


def test_refuses_to_send_too_large_values() -> None:
    huge = np.broadcast_to(0.0, (1 << 12, 1 << 12))
    with pytest.raises(InvalidMessage, match=r"shape \(4096, 4096\)"):
        Encoder({"value": [huge]})
    with pytest.raises(InvalidMessage, match="inner lists"):
        Encoder({"value": [[0] * 200] * 200})
    with pytest.raises(InvalidMessage, match="a message of 20 MB"):
        Encoder({"value": ["," * 2000] * 9990})
    assert type(through(nested(40))) is list


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


BITS = {"bit_generator": "PCG64", "state": {"state": -1, "inc": 1}, "has_uint32": 0, "uinteger": 0}
EIGHT = "AAAAAAAAAAA="  # bytes, all zero


@each([
    "right", "[1]", "{}", "[" * 100_000, "[" + "0," * 300_000 + "0]", " " * MAX_LINE + "{}", "9" * 5000,
    {"tuple": 1}, {"list": 4}, {"thing": 0}, {"again": 0, "list": []}, {"again": 0}, {"again": -1}, {"again": True},
    {"again": "x"}, {"dict": [["a"]]}, {"dict": 3}, {"dtype": "|O"}, {"dtype": 3}, {"foreign": "\0"}, {"stored": "x"},
    {"stored": -4}, {"stored": 1}, {"tuple": [{"list": [{"nothing": 1}]}]}, {"scalar": ["<f8", [2], 2 * EIGHT]},
    {"array": ["<f8", [2], EIGHT]}, {"array": ["<f8", [0], EIGHT]}, {"array": ["|O", [1], EIGHT]},  # not its shape
    {"array": ["<f8", [1 << 62, 1 << 62], EIGHT]}, {"array": ["<U1", [2], EIGHT]}, {"array": ["<M8[s]", [1], EIGHT]},
    {"array": [[["a", "<f8"]], [1], EIGHT]}, {"array": ["f8,O", [1], EIGHT]}, {"array": ["<f8", "ab", EIGHT]},
    {"array": ["<f8", [1] * 200, EIGHT]}, {"array": ["<f8", [1], "no base64"]}, {"array": {}}, {"array": 3},
    {"generator": json.dumps(BITS)}, {"generator": 3}, {"generator": "[" * 100_000},
])
def test_refuses_line_that_is_not_a_message(form: Any) -> None:
    line = form if isinstance(form, str) else json.dumps({"dict": [["value", form]]})
    with pytest.raises(InvalidMessage, match="this line is not a message of the grader"):
        decode(line.encode() + b"\n", STORED.__getitem__)


def test_read_line_stops_at_line_end_or_limit() -> None:
    assert read_line(io.BytesIO(b"one\ntwo")) == b"one\n"
    for cut in (b"", b"two"):
        with pytest.raises(EOFError):
            read_line(io.BytesIO(cut))
    assert len(read_line(io.BytesIO(b" " * (MAX_LINE + 9)))) == MAX_LINE + 1
