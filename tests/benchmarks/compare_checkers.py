"""Six gradient checkers, twelve planted errors: who catches what, and what each prints.

    pip install . torch jax autograd scipy
    python tests/benchmarks/compare_checkers.py            the tables of docs/checkers.md, as Markdown

Every checker is called as its documentation shows, with its own defaults, on the same inputs. Each first sees the right
gradient: an alarm there is a false one, and its alarm at the planted error then counts for nothing. A check may take
LIMIT seconds. scipy.optimize.check_grad returns a bare norm and leaves the verdict to the reader; here the reader cries
out at more than 1e-6 of the gradient's norm.
"""

import contextlib
import functools
import io
import resource
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import numpy_attention as na

LIMIT = 60
MEMORY = 64 * 2**30
SHOWN = 9  # lines of what a checker prints: a report of ours, the beginning of a matrix
Arrays = tuple[np.ndarray, ...]


@dataclass
class Planted:
    """A function of arrays of floats, its right gradient, and a wrong one."""

    name: str
    inputs: Arrays
    f: Callable[..., np.ndarray]
    right: Callable[..., Arrays]  # (dy, *inputs) -> gradients
    wrong: Callable[..., Arrays]


def by_cache(op: Any, op_backward: Any, **options: Any) -> tuple[Callable[..., np.ndarray], Callable[..., Arrays]]:
    """An op of this package as a plain function and its vector-Jacobian product."""

    @functools.wraps(op)  # with the op's name and arguments, as a function of one's own would have them
    def f(*arrays: np.ndarray) -> np.ndarray:
        return op(*arrays, **options)[0]

    def vjp(dy: np.ndarray, *arrays: np.ndarray) -> Arrays:
        grads = op_backward(dy, op(*arrays, **options)[1])
        return tuple(grad for grad in grads if grad is not None) if isinstance(grads, tuple) else (grads,)

    return f, vjp


def spoilt(vjp: Callable[..., Arrays], spoil: Callable[..., Any], which: int = 0) -> Callable[..., Arrays]:
    """The same gradients, number `which` changed by spoil(gradient, *inputs)."""

    def wrong(dy: np.ndarray, *arrays: np.ndarray) -> Arrays:
        grads = [np.array(grad) for grad in vjp(dy, *arrays)]
        changed = spoil(grads[which], *arrays)
        grads[which] = grads[which] if changed is None else changed
        return tuple(grads)

    return wrong


def scaled(factor: float, index: Any) -> Callable[..., None]:
    """One element, or one row, times a factor."""

    def spoil(grad: np.ndarray, *_: np.ndarray) -> None:
        grad[index] *= factor

    return spoil


def planted() -> Iterator[Planted]:
    """The twelve."""
    rng = np.random.default_rng(0)
    normal = rng.standard_normal

    f, vjp = by_cache(na.gelu, na.gelu_backward)
    yield Planted("one element of 1,000,000 off by 1 %", (normal((1000, 1000)),), f, vjp,
                  spoilt(vjp, scaled(1.01, (617, 250))))
    f, vjp = by_cache(na.softmax, na.softmax_backward)
    yield Planted("one of twelve softmax elements off by 1 %", (normal((3, 4)),), f, vjp,
                  spoilt(vjp, scaled(1.01, (1, 2))))
    f, vjp = by_cache(na.silu, na.silu_backward)
    yield Planted("wrong sign", (normal((3, 4)),), f, vjp, spoilt(vjp, lambda grad, *_: -grad))
    f, vjp = by_cache(na.linear, na.linear_backward)
    yield Planted("square matrix transposed", (normal((3, 4)), normal((4, 4))), f, vjp,
                  spoilt(vjp, lambda grad, *_: grad.T.copy(), 1))
    yield Planted("factor 2", (normal((3, 4)), normal((4, 5))), f, vjp, spoilt(vjp, scaled(2.0, ...), 1))
    yield Planted("sum over the batch missing", (normal((3, 4)), normal((4, 5)), normal(5)), f, vjp,
                  lambda dy, *arrays: (*vjp(dy, *arrays)[:2], dy[-1].copy()))
    mask = np.array([[True, False, True], [False, True, True], [True, True, False], [True, False, False]])
    qkv = (normal((4, 2)), normal((3, 2)), normal((3, 5)))
    f, vjp = by_cache(na.scaled_dot_product_attention, na.scaled_dot_product_attention_backward, mask=mask)
    _, unmasked = by_cache(na.scaled_dot_product_attention, na.scaled_dot_product_attention_backward)
    yield Planted("mask left out of the backward", qkv, f, vjp, unmasked)
    norm = (normal((3, 4)), normal(4), normal(4))
    f, vjp = by_cache(na.layer_norm, na.layer_norm_backward)
    yield Planted("right at gamma = 1 only", norm, f, vjp, lambda dy, x, gamma, beta: (
        vjp(dy, x, np.ones_like(gamma), beta)[0], *vjp(dy, x, gamma, beta)[1:]))
    yield Planted("wrong in the last row only", norm, f, vjp, spoilt(vjp, scaled(1.05, -1)))
    ids = np.array([2, 0, 2, 4])

    def lookup(table: np.ndarray) -> np.ndarray:
        return table[ids]

    yield Planted("wrong for repeated ids only", (normal((5, 3)),), lookup,
                  lambda dy, table: (na.embedding_backward(dy, na.embedding(ids, table)[1]),),
                  lambda dy, table: (_buffered(table, ids, dy),))
    f, vjp = by_cache(na.linear, na.linear_backward)
    single = (normal((3, 4)).astype(np.float32), normal((4, 5)).astype(np.float32))
    yield Planted("float32, off by 1e-3", single, f, vjp, spoilt(vjp, scaled(1.001, ...), 1))
    f, vjp = by_cache(na.gelu, na.gelu_backward)
    yield Planted("a NaN", (normal((3, 4)),), f, vjp, spoilt(vjp, scaled(np.nan, (2, 1))))


def _buffered(table: np.ndarray, ids: np.ndarray, dy: np.ndarray) -> np.ndarray:
    dtable = np.zeros_like(table)
    dtable[ids] += dy
    return dtable


def ours(f: Any, vjp: Any, inputs: Arrays) -> str:
    """numpy_attention.gradcheck."""
    try:
        na.gradcheck.gradcheck_vjp(f, vjp, inputs)
    except na.gradcheck.GradientError as error:
        return str(error)
    return ""


def torch_checker(fast: bool) -> Callable[[Any, Any, Arrays], str]:
    """torch.autograd.gradcheck on a custom Function."""

    def run(f: Any, vjp: Any, inputs: Arrays) -> str:
        import torch
        from torch.autograd.gradcheck import GradcheckError

        class Function(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *tensors: Any) -> Any:
                ctx.save_for_backward(*tensors)
                return torch.from_numpy(np.array(f(*(t.detach().numpy() for t in tensors))))

            @staticmethod
            def backward(ctx: Any, *dy: Any) -> Any:
                grads = vjp(dy[0].numpy(), *(t.detach().numpy() for t in ctx.saved_tensors))
                return tuple(torch.from_numpy(np.array(grad)) for grad in grads)

        tensors = tuple(torch.tensor(x, requires_grad=True) for x in inputs)
        try:
            torch.autograd.gradcheck(Function.apply, tensors, fast_mode=fast)
        except GradcheckError as error:
            return str(error)
        return ""

    return run


def jax_checker(f: Any, vjp: Any, inputs: Arrays) -> str:
    """jax.test_util.check_grads on a custom_vjp whose parts are calls back to NumPy."""
    import jax
    from jax.test_util import check_grads

    jax.config.update("jax_enable_x64", True)
    y = f(*inputs)

    @jax.custom_vjp
    def function(*arrays: Any) -> Any:
        shape = jax.ShapeDtypeStruct(y.shape, y.dtype)
        return jax.pure_callback(lambda *a: np.asarray(f(*map(np.asarray, a))), shape, *arrays)

    def backward(arrays: Any, dy: Any) -> Any:
        shapes = tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in inputs)
        return jax.pure_callback(lambda g, *a: vjp(np.asarray(g), *map(np.asarray, a)), shapes, dy, *arrays)

    function.defvjp(lambda *arrays: (function(*arrays), arrays), backward)
    try:
        check_grads(function, inputs, order=1, modes=["rev"])
    except AssertionError as error:
        return str(error).strip() or "AssertionError"
    return ""


def autograd_checker(f: Any, vjp: Any, inputs: Arrays) -> str:
    """autograd.test_util.check_grads on a primitive."""
    from autograd.extend import defvjp, primitive
    from autograd.test_util import check_grads

    function = primitive(f)
    defvjp(function, *(lambda ans, *arrays, i=i: lambda dy: vjp(dy, *arrays)[i] for i in range(len(inputs))))
    try:
        # Without the tuple of argument numbers it would look at the first argument alone.
        check_grads(function, tuple(range(len(inputs))), modes=["rev"], order=1)(*inputs)
    except AssertionError as error:
        return str(error).strip() or "AssertionError"
    return ""


def scipy_checker(f: Any, vjp: Any, inputs: Arrays) -> str:
    """scipy.optimize.check_grad of sum(dy * y), all inputs in one vector."""
    from scipy.optimize import check_grad

    dy = np.random.default_rng(1).standard_normal(f(*inputs).shape).astype(inputs[0].dtype)
    places = np.cumsum([x.size for x in inputs])[:-1]

    def arrays_of(flat: np.ndarray) -> Arrays:
        return tuple(part.reshape(x.shape).astype(x.dtype) for part, x in zip(np.split(flat, places), inputs))

    flat = np.concatenate([x.reshape(-1) for x in inputs])

    def gradient(t: np.ndarray) -> np.ndarray:
        return np.concatenate([grad.reshape(-1) for grad in vjp(dy, *arrays_of(t))])

    norm = check_grad(lambda t: float(np.sum(dy * f(*arrays_of(t)))), gradient, flat)
    return "" if norm <= 1e-6 * np.linalg.norm(gradient(flat)) else repr(float(norm))


CHECKERS: dict[str, Callable[[Any, Any, Arrays], str]] = {
    "numpy_attention": ours, "torch": torch_checker(False), "torch fast_mode": torch_checker(True), "jax": jax_checker,
    "autograd": autograd_checker, "scipy": scipy_checker,
}  # fmt: skip


def verdict(checker: Callable[[Any, Any, Arrays], str], f: Any, vjp: Any, inputs: Arrays) -> tuple[str, str, float]:
    """What came of it: passed, alarm, too long or cannot; what it printed; and the seconds."""

    def out_of_time(*_: Any) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, out_of_time)
    started = time.perf_counter()
    signal.alarm(LIMIT)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            said = checker(f, vjp, tuple(x.copy() for x in inputs))
        state = "alarm" if said else "passed"
    except TimeoutError:
        state, said = "too long", f"no answer after {LIMIT} seconds"
    except Exception as error:  # some cannot do it at all: that is a result too
        state, said = "cannot", f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    return state, said, time.perf_counter() - started


def main() -> None:
    """Two tables, then what each printed."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    words = {"alarm": "**caught**", "passed": "missed", "too long": "too long", "cannot": "cannot"}
    print("| planted error | " + " | ".join(CHECKERS) + " |")
    print("|---" * (len(CHECKERS) + 1) + "|")
    caught = dict.fromkeys(CHECKERS, 0)
    printed: list[str] = []
    count = 0
    for case in planted():
        row = []
        count += 1
        printed.append(f"### {case.name}\n")
        for name, checker in CHECKERS.items():
            fine, noise, _ = verdict(checker, case.f, case.right, case.inputs)
            state, said, _ = verdict(checker, case.f, case.wrong, case.inputs)
            if fine == "alarm":
                cell, said = "false alarm", noise
            else:
                cell = words[state]
                caught[name] += state == "alarm"
            row.append(cell)
            if said:
                lines = said.splitlines()
                text = "\n".join(line[:150] for line in lines[:SHOWN]) + ("\n..." if len(lines) > SHOWN else "")
                printed.append(f"{name} ({cell.strip('*')}):\n\n```text\n{text}\n```\n")
        print(f"| {case.name} | " + " | ".join(row) + " |", flush=True)
    print("| **caught** | " + " | ".join(f"**{caught[name]} of {count}**" for name in CHECKERS) + " |")
    print("\n".join(["", *printed]))


if __name__ == "__main__":
    main()
