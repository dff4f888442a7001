"""What travels arrives as it was; what is no message, or too large for one, is refused before it is believed."""

import io
import json
from typing import Any

import numpy as np
import pytest

from numpy_attention.grade.messages import HEADER, MOST_BYTES, MOST_JSON, Garbled, Things, pack, unpack
from tests.every import each


def through(value: Any) -> Any:
    sent = Things()
    form, things = unpack(io.BytesIO(pack({"value": sent.tree(value)}, sent.things)))
    return Things(things).value(form["value"])


@each([None, True, 3, -2, 0.1, float("inf"), "text", (1, [2.5, None], {"w": (3,)}), (), {}, np.float32, np.float64])
def test_plain_values_arrive_as_they_were(value: Any) -> None:
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


def test_an_array_that_stands_twice_is_one_array() -> None:
    x = np.ones(3)
    one, other, copied = through([x, (x,), x.copy()])
    assert one is other[0]
    assert one is not copied


def test_nan_and_signed_zeros_arrive_too() -> None:
    sent = np.array([np.nan, -0.0, np.inf])
    assert through(sent).tobytes() == sent.tobytes()
    assert np.isnan(through(float("nan")))


def test_a_single_number_goes_as_an_array_and_arrives_as_what_it_was() -> None:
    sent = Things()
    assert sent.tree(np.float32(0.1)) == {"scalar": 0}
    assert isinstance(sent.things[0], np.ndarray)
    assert type(through(np.float32(0.1))) is np.float32


def test_a_generator_draws_the_same_numbers() -> None:
    rng = np.random.default_rng(5)
    rng.random(3)
    assert through(rng).random() == rng.random()


@each([
    ({1, 2}, "set"), (print, "builtin_function_or_method"), (np.array([None]), "array of object"), (1j, "complex"),
    (np.array(["a"]), "array of <U1"), (1 << 70, "int"), (np.str_, "type"),
])
def test_of_what_cannot_travel_the_name_of_its_type_arrives(pair: tuple[Any, str]) -> None:
    assert type(through(pair[0])).__name__ == pair[1]


def test_what_is_too_large_is_refused_before_it_is_sent() -> None:
    huge = np.broadcast_to(0.0, (1 << 12, 1 << 12))
    with pytest.raises(Garbled, match=r"shape \(4096, 4096\)"):
        Things().tree([huge])
    with pytest.raises(Garbled, match="lists in lists"):
        Things().tree([[0] * 200] * 200)
    assert type(through(nested(40))) is list


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def message(form: Any, data: bytes = b"") -> bytes:
    text = form if isinstance(form, bytes) else json.dumps(form).encode()
    return HEADER.pack(len(text), len(data)) + text + data


BITS = {"bit_generator": "PCG64", "state": {"state": -1, "inc": 1}, "has_uint32": 0, "uinteger": 0}


@each([
    b"right" * 3, b"0" * 9999,
    message(b"not JSON"), message([1]), message({}), message(b"[" * 100_000), message({"things": 3}),
    message({"things": [["<f8", [2]]]}, b"12345678"),  # shorter than its shape says
    message({"things": [["<f8", [1]]]}, b"0" * 16), message({"things": [["<f8", [-1]]]}, b"0" * 8),
    message({"things": [["|O", [1]]]}, b"0" * 8), message({"things": [["<f8", [1 << 62, 1 << 62]]]}, b"0" * 8),
    message({"things": [["<U1", [2]]]}, b"0" * 8), message({"things": [["<M8[s]", [1]]]}, b"0" * 8),
    message({"things": [[[["a", "<f8"]], [1]]]}, b"0" * 8), message({"things": [["f8,O", [1]]]}, b"0" * 16),
    message({"things": [["<f8", "ab"]]}), message(b'{"things": [], "n": ' + b"9" * 5000 + b"}"),
    message({"things": [["<f8", [1] * 200]]}, b"0" * 8), message({"things": [{}]}), message({"things": [BITS]}),
    HEADER.pack(MOST_JSON + 1, 0), HEADER.pack(2, MOST_BYTES + 1),
])
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(Garbled):
        unpack(io.BytesIO(data))


@each([
    [1], {}, {"thing": 0, "list": []}, {"thing": 7}, {"thing": -1}, {"thing": True}, {"scalar": "x"}, {"list": 4},
    {"scalar": 1}, {"dict": [["a"]]}, {"dict": 3}, {"dtype": "|O"}, {"dtype": 3}, {"nothing": 1}, {"foreign": "\0"},
    {"kept": "x"}, {"kept": -4}, {"kept": 1}, {"tuple": [{"list": [{"nothing": 1}]}]},
])
def test_a_tree_that_describes_nothing_is_refused(tree: Any) -> None:
    with pytest.raises(Garbled):
        Things([np.ones(2), np.random.default_rng(0)], kept_as={}.__getitem__).value(tree)
    with pytest.raises(Garbled):
        Things().value({"kept": 1})
