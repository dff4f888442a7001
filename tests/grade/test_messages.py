"""What travels arrives as it was; what is no message, or too large for one, is refused before it is believed."""

import io
import json
from typing import Any

import numpy as np
import pytest
from numpy_attention.grade.wire import (
    HEADER,
    MAGIC,
    MOST_BYTES,
    MOST_JSON,
    Parts,
    WireError,
    as_tree,
    from_tree,
    pack,
    unpack,
)


def through(value: Any) -> Any:
    parts = Parts()
    form, arrays = unpack(io.BytesIO(pack({"value": as_tree(value, parts, lambda _: None)}, parts.arrays)).read)
    return from_tree(form["value"], Parts(arrays), int)


@pytest.mark.parametrize("value", [
    None, True, 3, -2, 0.1, float("inf"), "text", (1, [2.5, None], {"w": (3,)}), (), {}, np.float32, np.float64,
])
def test_plain_values_arrive_as_they_were(value: Any) -> None:
    assert through(value) == value
    assert type(through(value)) is type(value)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "float32", "complex128", ">f8", ">i4"])
@pytest.mark.parametrize("shape", [(2, 3, 5), (), (0, 4), (1,)])
def test_arrays_arrive_to_the_last_bit(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> None:
    sent = np.array(100 * rng.random(shape)).astype(dtype)
    came = through([sent, sent.swapaxes(0, -1) if sent.ndim else sent, sent[..., :1] if sent.ndim else sent])
    assert np.array_equal(came[0], sent)
    assert came[0].shape == shape
    assert came[0].dtype == np.dtype(dtype).newbyteorder("=")
    assert came[0].flags.writeable
    assert np.array_equal(came[1], sent.swapaxes(0, -1) if sent.ndim else sent)


def test_nan_and_signed_zeros_arrive_too() -> None:
    sent = np.array([np.nan, -0.0, np.inf])
    assert through(sent).tobytes() == sent.tobytes()
    assert type(through(np.float32(0.1))) is np.float32


def test_a_generator_draws_the_same_numbers() -> None:
    rng = np.random.default_rng(5)
    rng.random(3)
    assert through(rng).random() == rng.random()


@pytest.mark.parametrize(("value", "name"), [
    ({1, 2}, "set"), (print, "builtin_function_or_method"), (np.array([None]), "array of object"), (1j, "complex"),
    (np.array(["a"]), "array of <U1"), (1 << 70, "int"),
])
def test_of_what_cannot_travel_the_name_of_its_type_arrives(value: Any, name: str) -> None:
    assert type(through(value)).__name__ == name


def test_what_is_too_large_is_refused_before_it_is_sent() -> None:
    huge = np.broadcast_to(0.0, (1 << 12, 1 << 12))
    with pytest.raises(WireError, match=r"shape \(4096, 4096\)"):
        as_tree([huge], Parts(), lambda _: None)
    with pytest.raises(WireError, match="lists in lists"):
        as_tree([[0] * 200] * 200, Parts(), lambda _: None)
    assert type(through(nested(40))) is list


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def message(form: Any, data: bytes = b"", magic: bytes = MAGIC) -> bytes:
    text = form if isinstance(form, bytes) else json.dumps(form).encode()
    return HEADER.pack(magic, len(text), len(data)) + text + data


@pytest.mark.parametrize("data", [
    message({"arrays": []}, magic=b"huh?"),
    message(b"not JSON"), message([1]), message({}), message(b"[" * 100_000), message({"arrays": 3}),
    message({"arrays": [["<f8", [2]]]}, b"12345678"),  # shorter than its shape says
    message({"arrays": [["<f8", [1]]]}, b"0" * 16), message({"arrays": [["<f8", [-1]]]}, b"0" * 8),
    message({"arrays": [["|O", [1]]]}, b"0" * 8), message({"arrays": [["<f8", [1 << 62, 1 << 62]]]}, b"0" * 8),
    message({"arrays": [["<f8", "ab"]]}), message(b'{"arrays": [], "n": ' + b"9" * 5000 + b"}"),
    message({"arrays": [["<f8", [1] * 200]]}, b"0" * 8),
    HEADER.pack(MAGIC, MOST_JSON + 1, 0), HEADER.pack(MAGIC, 2, MOST_BYTES + 1),
])
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        unpack(io.BytesIO(data).read)


@pytest.mark.parametrize("tree", [
    [1], 0.5, {}, {"array": 0, "list": []}, {"array": 7}, {"array": -1}, {"array": True}, {"scalar": "x"}, {"list": 4},
    {"dict": [["a"]]}, {"dict": [[[], 1]] * 2 + [3]}, {"float": "a tenth"}, {"generator": {}}, {"dtype": "|O"},
    {"generator": {"bit_generator": "PCG64", "state": {"state": -1, "inc": 1}, "has_uint32": 0, "uinteger": 0}},
    {"nothing": 1}, {"foreign": "\0"}, {"object": "x"}, {"object": -4},
])
def test_a_tree_that_describes_nothing_is_refused(tree: Any) -> None:
    with pytest.raises(WireError):
        from_tree(tree, Parts([np.ones(2)]), lambda number: number)
