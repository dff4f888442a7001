"""Functions of JAX and autograd are checked without changes, also in cases where their own checkers fail.

Functions of CuPy arrays are tested in tests/backend, with a stand-in or a real GPU; PyTorch in test_torch_adapter.
The copy to another library and back is tested with an artificial library whose arrays contain NumPy arrays.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from numpy_attention.gradcheck import GradientError, Report
from numpy_attention.gradcheck.adapters import (
    check_autograd,
    check_jax,
    check_library,
)


@pytest.mark.slow
class TestJax:
    """Needs JAX, which the tests do not install."""

    @pytest.fixture
    def jax(self) -> Any:
        return pytest.importorskip("jax")

    def custom(self, jax: Any, factor: float = 1.0) -> Any:
        @jax.custom_vjp
        def gated(x: Any, w: Any) -> Any:
            return jax.numpy.sin(x) * w

        def backward(kept: Any, dy: Any) -> Any:
            x, w = kept
            return jax.numpy.cos(x) * w * dy, factor * (jax.numpy.sin(x) * dy).sum(0)

        gated.defvjp(lambda x, w: (gated(x, w), (x, w)), backward)
        return gated

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_a_custom_vjp(self, jax: Any, dtype: type, rng: np.random.Generator) -> None:
        x, w = rng.standard_normal((3, 4)).astype(dtype), rng.standard_normal(4).astype(dtype)
        before = jax.config.jax_enable_x64
        report = check_jax(self.custom(jax), (x, w))
        assert report.arguments.keys() == {"x", "w"}
        assert report.name == "gated"
        assert report.arguments["x"].analytic.dtype == np.float64
        assert jax.config.jax_enable_x64 == before
        with pytest.raises(GradientError, match="gradcheck gated: dw wrong"):
            check_jax(self.custom(jax, 1.001), {"w": jax.numpy.asarray(w), "x": jax.numpy.asarray(x)})

    def test_trees_integers_and_complex_numbers(self, jax: Any, rng: np.random.Generator) -> None:
        z = rng.standard_normal(3) + 1j * rng.standard_normal(3)

        def f(p: dict[str, Any], scale: float, key: Any, *, n: int) -> Any:
            drawn = jax.random.normal(key, (3,))
            return {"y": p["z"] ** n * scale * drawn, "size": jax.numpy.abs(p["z"]), "first": p["z"].real.argmax()}

        given = {"p": {"z": z, "ids": np.arange(3)}, "scale": 0.5, "key": jax.random.key(0), "n": 3}
        report = check_jax(f, given)
        assert report.arguments.keys() == {"p.z.real", "p.z.imag", "scale"}
        assert check_jax(f, given, no_gradient="scale").arguments.keys() == {"p.z.real", "p.z.imag"}


@pytest.mark.slow
class TestAutograd:
    """Needs autograd, which the tests do not install."""

    def test_a_primitive(self, rng: np.random.Generator) -> None:
        extend = pytest.importorskip("autograd.extend")
        x = rng.standard_normal((3, 4))
        for factor, words in ((1.0, ""), (1.001, "gradcheck logsumexp: dx wrong")):
            logsumexp = extend.primitive(self.logsumexp)
            extend.defvjp(logsumexp, lambda y, x, c=factor: lambda dy: c * dy[..., None] * np.exp(x - y[..., None]))
            if words:
                with pytest.raises(GradientError, match=words):
                    check_autograd(logsumexp, (x,))
            else:
                assert check_autograd(logsumexp, {"x": x}).arguments.keys() == {"x"}

    @staticmethod
    def logsumexp(x: np.ndarray) -> np.ndarray:
        return np.log(np.exp(x).sum(-1))


ENTERED: list[str] = []


class Theirs:
    """An array of the artificial library, which NumPy cannot use."""

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

    def to_library(name: str, leaf: Any) -> Any:
        return Theirs(leaf) if name.startswith("p.") else leaf

    inputs = {"p": {"a": A, "b": B}, "ids": np.arange(3)}
    without = options.pop("no_gradient", ())
    return check_library(product, inputs, held, to_library, pull, at_work, without, options)


A, B = np.array([0.5, -1.5, 2.5]), np.array([1.25, 0.75, -2.0])


def test_a_right_gradient_by_name_in_its_tree() -> None:
    report = check(power=3, seed=5)
    assert report.arguments.keys() == {"p.a", "p.b"}
    assert (report.name, report.seed) == ("product", 5)
    assert not ENTERED


def test_a_wrong_gradient_and_an_excluded_argument() -> None:
    with pytest.raises(GradientError, match=r"gradcheck product: dp\.b wrong"):
        check(factor=1.001)
    assert check(factor=1.001, no_gradient="p.b").arguments.keys() == {"p.a"}


def test_options_reach_the_check() -> None:
    report = check(power=3, skip={"p.a": np.arange(3) == 1}, robustness=False)
    assert np.isnan(report.arguments["p.a"].numeric).tolist() == [False, True, False]
    assert "robustness was not checked" in str(report)


def test_an_error_in_the_library_backward_is_reported() -> None:
    with pytest.raises(GradientError, match="gradcheck product: the backward raised RuntimeError: no such thing"):
        check(raises=True)
    assert not ENTERED
