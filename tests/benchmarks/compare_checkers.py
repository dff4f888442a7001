"""Five gradient checkers, twelve planted mistakes: which checker catches which mistake, and what it prints.

    pip install . torch jax autograd scipy
    python -m tests.benchmarks.compare_checkers            print the table and the texts as Markdown
    python -m tests.benchmarks.compare_checkers --write    write them into docs/checkers.md; ten minutes
    python -m tests.benchmarks.compare_checkers --ours     renew only the texts of our checker on the page

Every checker is called as its documentation shows, with its default options, on the same inputs. It checks the right
gradient first: an alarm there is a false alarm, and then an alarm for the planted mistake does not count. A check may
take LIMIT seconds. scipy.optimize.check_grad returns only a norm; here a norm above 1e-6 of the gradient's norm counts
as an alarm.
"""

import contextlib
import importlib.metadata
import io
import re
import signal
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import numpy_attention as na
from tests.benchmarks.planted_errors import Arrays, planted
from tests.generated import with_block

PAGE = Path(__file__).parents[2] / "docs" / "checkers.md"
LIMIT = 60
MEMORY = 64 * 2**30
MAX_LINES = 9  # lines of a printed text: enough for one of our reports


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
                return tuple(None if grad is None else torch.from_numpy(np.array(grad)) for grad in grads)

        tensors = tuple(torch.tensor(x, requires_grad=True) for x in inputs)
        try:
            torch.autograd.gradcheck(Function.apply, tensors, fast_mode=fast)
        except GradcheckError as error:
            return str(error)
        return ""

    return run


def jax_checker(f: Any, vjp: Any, inputs: Arrays) -> str:
    """jax.test_util.check_grads on a custom_vjp that calls NumPy."""
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
        # Without the tuple of argument numbers autograd would check only the first argument.
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
    """The result (passed, alarm, too long or cannot), the printed text, and the seconds of processor time."""

    def out_of_time(*_: Any) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, out_of_time)
    started = time.process_time()
    signal.alarm(LIMIT)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            said = checker(f, vjp, tuple(x.copy() for x in inputs))
        state = "alarm" if said else "passed"
    except TimeoutError:
        state, said = "too long", f"no answer after {LIMIT} seconds"
    except Exception as error:  # some checkers cannot run this check: a result too
        state, said = "cannot", f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    return state, said, time.process_time() - started


def compare() -> tuple[str, str]:
    """The table, and the texts that the checkers print."""
    cells = {"alarm": "**caught**", "passed": "missed", "too long": "too long", "cannot": "cannot"}
    table = ["| planted mistake | " + " | ".join(CHECKERS) + " |", "|---" * (len(CHECKERS) + 1) + "|"]
    caught = dict.fromkeys(CHECKERS, 0)
    printed: list[str] = []
    for case in planted():
        row = []
        printed.append(f"### {case.name}\n")
        for name, checker in CHECKERS.items():
            fine, noise, _ = verdict(checker, case.f, case.right, case.inputs)
            state, said, _ = verdict(checker, case.f, case.wrong, case.inputs)
            if fine == "alarm":
                cell, said = "false alarm", noise
            else:
                cell = cells[state]
                caught[name] += state == "alarm"
            row.append(cell)
            if said:
                printed.append(f"{name} ({cell.strip('*')}):\n\n```text\n{shortened(said)}\n```\n")
        table.append(f"| {case.name} | " + " | ".join(row) + " |")
        print(table[-1], file=sys.stderr, flush=True)
    table.append("| **caught** | " + " | ".join(f"**{caught[name]} of 12**" for name in CHECKERS) + " |")
    return "\n".join(table), "\n".join(printed).strip()


def shortened(said: str) -> str:
    """The first lines of a printed text, each cut to 150 characters."""
    lines = said.splitlines()
    return "\n".join(line[:150].rstrip() for line in lines[:MAX_LINES]) + ("\n..." if len(lines) > MAX_LINES else "")


def with_our_reports(page: str) -> str:
    """The page with the present reports of our checker."""
    for case in planted():
        said = shortened(ours(case.f, case.wrong, case.inputs))
        before = rf"(### {re.escape(case.name)}\n\nnumpy_attention \(caught\):\n\n```text\n)"
        pattern = before + r".*?(?=\n```)"
        page, count = re.subn(pattern, lambda m, said=said: m[1] + said, page, count=1, flags=re.DOTALL)
        assert count == 1, case.name
    return page


def main() -> None:
    """Print the table, the versions and the texts, or write them into the page."""
    if "--ours" in sys.argv[1:]:
        PAGE.write_text(with_our_reports(PAGE.read_text("utf-8")))
        return
    import resource  # exists only on Unix; the tests do not run this function

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    table, printed = compare()
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}"
                         for name in ("numpy", "torch", "jax", "autograd", "scipy"))
    if "--write" in sys.argv[1:]:
        text = PAGE.read_text("utf-8")
        for name, new in (("table", table), ("versions", f"Versions: {versions}."), ("printed", printed)):
            text = with_block(text, name, new)
        PAGE.write_text(text)
    else:
        print(table, versions, printed, sep="\n\n")


if __name__ == "__main__":
    main()
