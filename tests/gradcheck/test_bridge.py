"""Over to another library and back, with one made up for this: it holds NumPy's arrays, and knows one derivative."""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from numpy_attention.gradcheck import GradientError, Report
from numpy_attention.gradcheck.bridge import check_there, leaves_of, names_of, with_dy

ENTERED: list[str] = []


class Theirs:
    """An array of the library, with which NumPy can do nothing."""

    def __init__(self, array: Any) -> None:
        self.held = array


@contextlib.contextmanager
def at_work() -> Iterator[None]:
    ENTERED.append("in")
    try:
        yield
    finally:
        ENTERED.pop()


def product(p: dict[str, Any], *, ids: Any, power: int = 1) -> dict[str, Any]:
    assert ENTERED
    assert isinstance(ids, np.ndarray)
    return {"y": Theirs(held(p["a"]) ** power * held(p["b"])), "ids": ids}


def held(array: Any) -> Any:
    return array.held if isinstance(array, Theirs) else array


def check(factor: float = 1.0, raises: bool = False, **options: Any) -> Report:
    def pull(g: Any, arrays: dict[str, Any], dy: Any) -> dict[str, Any]:
        assert ENTERED
        assert dy["ids"] is None
        if raises:
            raise RuntimeError("no such thing")
        assert np.array_equal(g(arrays)["y"].held, g(dict(arrays))["y"].held)
        a, d = arrays["p.a"].held, dy["y"]
        b = arrays["p.b"].held if "p.b" in arrays else B
        power = options.get("power", 1)
        grads = {"p.a": Theirs(d * power * a ** (power - 1) * b), "p.b": Theirs(factor * d * a**power)}
        return {name: grads[name] for name in arrays}

    def there(name: str, leaf: Any) -> Any:
        return Theirs(leaf) if name.startswith("p.") else leaf

    inputs = {"p": {"a": A, "b": B}, "ids": np.arange(3)}
    without = options.pop("no_gradient", ())
    return check_there(product, inputs, held, there, pull, at_work, without, options)


A, B = np.array([0.5, -1.5, 2.5]), np.array([1.25, 0.75, -2.0])


def test_a_right_gradient_by_name_in_its_tree() -> None:
    report = check(power=3, seed=5)
    assert report.arguments.keys() == {"p.a", "p.b"}
    assert (report.name, report.seed) == ("product", 5)
    assert not ENTERED


def test_a_wrong_one_and_one_that_is_not_asked_for() -> None:
    with pytest.raises(GradientError, match=r"gradcheck product: dp\.b wrong"):
        check(factor=1.001)
    assert check(factor=1.001, no_gradient="p.b").arguments.keys() == {"p.a"}


def test_what_the_library_raises_on_the_way_back_is_the_backwards() -> None:
    with pytest.raises(GradientError, match="gradcheck product: the backward raised RuntimeError: no such thing"):
        check(raises=True)
    assert not ENTERED


def test_outputs_with_a_cotangent_and_names() -> None:
    assert with_dy({"y": A, "n": 3}, {"y": B, "n": None}) == [(A, B)]
    assert names_of("x") == ["x"]
    assert names_of(("x", "y")) == ["x", "y"]
    assert [name for name, _ in leaves_of({"p": {"a": A}, "x": [B]})] == ["p.a", "x[0]"]
