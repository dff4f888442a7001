"""Functions of JAX and autograd are checked as they are, and complaints about their own checkers are judged right.

Those on CuPy's arrays are in tests/backend, on the stand-in or on a real GPU; PyTorch's in test_torch_adapter.
"""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from numpy_attention.gradcheck import GradientError, gradcheck_vjp
from numpy_attention.gradcheck.adapters import check_autograd, check_jax


def test_nothing_is_imported_until_it_is_used() -> None:
    code = (
        "import sys, numpy_attention.gradcheck.adapters\n"
        "assert not {'torch', 'jax', 'autograd', 'cupy'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_step_that_must_not_be_guessed(rng: np.random.Generator) -> None:
    """No eps suits inputs of 2e4 beside inputs of 1 and a solver that stops at 1e-9.

    Source: https://github.com/pasteurlabs/tesseract-core/issues/740 and 706
    """

    def solve(drag: np.ndarray, heat: np.ndarray) -> np.ndarray:
        u = np.zeros_like(heat)
        for _ in range(200):  # u = cos(u) heat / (1 + drag / 1e4), to a tolerance
            new = np.cos(u) * heat / (1 + drag / 1e4)
            if np.max(np.abs(new - u)) < 1e-9:
                break
            u = new
        return u

    def vjp(dy: np.ndarray, drag: np.ndarray, heat: np.ndarray, off: float = 1.0) -> Any:
        factor = 1 / (1 + drag / 1e4)
        u = solve(drag, heat)
        du = dy / (1 + np.sin(u) * heat * factor)
        return -off * du * np.cos(u) * heat * factor**2 / 1e4, du * np.cos(u) * factor

    inputs = (2e4 * rng.uniform(0.5, 1.5, 4), rng.uniform(0.5, 1.5, 4))
    assert gradcheck_vjp(solve, vjp, inputs, rtol=1e-6).ok
    with pytest.raises(GradientError, match="ddrag wrong"):
        gradcheck_vjp(solve, lambda dy, *inputs: vjp(dy, *inputs, off=1.03), inputs, rtol=1e-6)


@pytest.mark.slow
class TestJax:
    """Needs JAX, which is no part of what the tests install."""

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

    def test_a_backward_of_the_wrong_form(self, jax: Any) -> None:
        @jax.custom_vjp
        def double(x: Any) -> Any:
            return 2 * x

        double.defvjp(lambda x: (double(x), None), lambda kept, dy: (2 * dy, dy))
        with pytest.raises(GradientError, match="gradcheck double: the backward raised"):
            check_jax(double, (np.ones(3),))

    def test_tolerances_that_grow_with_the_size_of_the_outputs(self, jax: Any, rng: np.random.Generator) -> None:
        """A sum over 3,000 inputs of one output, and 3,000 outputs of which one is off by 1e-5.

        Source: https://github.com/jax-ml/jax/issues/3130
        """

        def make(off: float) -> Any:
            @jax.custom_vjp
            def wave(x: Any) -> Any:
                return jax.numpy.sin(x)

            wave.defvjp(lambda x: (wave(x), x), lambda x, dy: (dy * jax.numpy.cos(x).at[1234].multiply(1 + off),))
            return wave

        x = rng.uniform(0.1, 1.0, 3000)
        assert check_jax(make(0.0), (x,)).ok
        assert check_jax(lambda x: make(0.0)(x).sum(), (x.astype(np.float32),)).ok
        with pytest.raises(GradientError) as caught:
            check_jax(make(1e-5), (x,))
        assert caught.value.report is not None
        assert caught.value.report.arguments["x"].worst == (1234,)


@pytest.mark.slow
class TestAutograd:
    """Needs autograd, which is no part of what the tests install."""

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

    def test_trees_and_complex_numbers(self, rng: np.random.Generator) -> None:
        anp = pytest.importorskip("autograd.numpy")
        z = rng.standard_normal(3) + 1j * rng.standard_normal(3)
        report = check_autograd(lambda p, s: {"y": p["z"] ** 3 * s, "size": anp.abs(p["z"]), "n": 3}, ({"z": z}, 0.5))
        assert report.arguments.keys() == {"p.z.real", "p.z.imag", "s"}
