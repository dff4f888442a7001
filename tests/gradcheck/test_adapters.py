"""Functions of JAX and autograd are checked without changes.

tests/docs/test_checking_page.py tests functions of CuPy arrays, with a stand-in; test_torch_adapter tests PyTorch.
"""

from typing import Any

import numpy as np
import pytest

from numpy_attention.gradcheck import GradientError
from numpy_attention.gradcheck.adapters import (
    check_autograd,
    check_jax,
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
