"""Right numbers are not enough: no state outside the cache, no array used twice, nothing but sums of dy."""

from typing import Any

import numpy as np
import pytest

from numpy_attention import ops
from numpy_attention.catalogue.table import CATALOGUE
from numpy_attention.gradcheck import GradientError
from numpy_attention.gradcheck.check import check
from numpy_attention.gradcheck.circumstances.structure import check_structure
from numpy_attention.gradcheck.numbers.claims import ask_backward
from numpy_attention.gradcheck.problems.layer import problem_of_layer
from numpy_attention.gradcheck.problems.problem import Problem, problem_of_function, problem_of_op
from numpy_attention.layers import Linear


def notes_of(problem: Problem, seed: int = 0) -> list[str]:
    return check_structure(problem, *ask_backward(problem, seed), seed)


def notes_of_op(op: Any, op_backward: Any, *arrays: Any, **options: Any) -> list[str]:
    return notes_of(problem_of_op(op, op_backward, arrays, options))


def notes_of_function(f: Any, vjp: Any, *arrays: Any) -> list[str]:
    return notes_of(problem_of_function(f, vjp, arrays, {}))


@pytest.mark.parametrize("name", CATALOGUE)
def test_no_false_alarm_and_no_note_in_the_catalogue(name: str) -> None:
    assert notes_of(CATALOGUE[name].case(1).problem(), seed=1) == []


def test_state_in_a_global_is_told(rng: np.random.Generator) -> None:
    kept = {}

    def square(x: np.ndarray) -> Any:
        kept["x"] = x
        return x * x, None

    with pytest.raises(GradientError, match=r"gradcheck square: dx changes when the forward is called once more"):
        notes_of_op(square, lambda dy, cache: 2 * kept["x"] * dy, rng.standard_normal((3, 4)))


def test_a_mask_kept_in_a_global_is_told_though_it_hides_little(rng: np.random.Generator) -> None:
    kept = {}

    def relu(x: np.ndarray) -> Any:
        kept["on"] = x > 0
        return x * kept["on"], None

    with pytest.raises(GradientError, match="is something kept outside the cache, in self or in a global"):
        notes_of_op(relu, lambda dy, cache: kept["on"] * dy, rng.standard_normal((3, 4)))


def test_state_in_a_layer_is_told(rng: np.random.Generator) -> None:
    class Stateful(Linear):
        def forward(self, x: np.ndarray) -> Any:
            self.x = x
            return super().forward(x)

        def backward(self, dy: np.ndarray, cache: Any) -> Any:
            _, inner = super().forward(self.x)
            return super().backward(dy, inner)

    right, wrong = (kind(3, 4, rng, dtype=np.float64) for kind in (Linear, Stateful))
    x = rng.standard_normal((2, 3))
    assert notes_of(problem_of_layer(right, (x,), {})) == []
    with pytest.raises(GradientError, match=r"gradcheck Stateful: dw changes when the forward is called once more"):
        notes_of(problem_of_layer(wrong, (x,), {}))
    assert not hasattr(wrong, "x"), "the layer itself stays as it is"


def test_a_dropout_mask_kept_in_a_global_is_told(rng: np.random.Generator) -> None:
    kept = {}

    def dropout(x: np.ndarray, generator: np.random.Generator) -> Any:
        kept["mask"] = 2.0 * (generator.random(x.shape) < 0.5)
        return x * kept["mask"], kept["mask"]

    x = np.ones((3, 4))  # so that only the mask differs
    assert notes_of_op(dropout, lambda dy, mask: mask * dy, x, generator=np.random.default_rng(0)) == []
    with pytest.raises(GradientError, match="dx changes when the forward is called once more"):
        notes_of_op(dropout, lambda dy, mask: kept["mask"] * dy, x, generator=np.random.default_rng(0))


def test_a_tape_that_must_go_back_in_order_is_told(rng: np.random.Generator) -> None:
    tape: list[np.ndarray] = []

    def square(x: np.ndarray) -> Any:
        tape.append(x)
        return x * x, len(tape)

    def square_backward(dy: np.ndarray, length: int) -> np.ndarray:
        return 2 * dy * tape[-1]

    with pytest.raises(GradientError, match="dx changes when the forward is called once more"):
        notes_of_op(square, square_backward, rng.standard_normal(5))


def test_a_tape_that_runs_empty_is_told(rng: np.random.Generator) -> None:
    tape: list[np.ndarray] = []

    def square(x: np.ndarray) -> Any:
        tape[:] = [x, x, x]
        return x * x, None

    def square_backward(dy: np.ndarray, cache: Any) -> np.ndarray:
        return 2 * dy * tape.pop()

    problem = problem_of_op(square, square_backward, (rng.standard_normal(5),), {})
    dy, grads = ask_backward(problem, 0)
    with pytest.raises(GradientError, match=r"the backward raises IndexError .* when called a few times"):
        check_structure(problem, dy, grads, 0)


def test_a_cache_in_an_array_that_is_used_again_is_told(rng: np.random.Generator) -> None:
    room = np.empty((3, 4))

    def square(x: np.ndarray) -> Any:
        cache = room if x.shape == room.shape else np.empty(x.shape)
        cache[...] = 2 * x
        return x * x, cache

    with pytest.raises(GradientError, match="or in an array used again"):
        notes_of_op(square, lambda dy, cache: cache * dy, rng.standard_normal((3, 4)))


def test_an_output_and_a_gradient_in_an_array_that_is_used_again_are_told(rng: np.random.Generator) -> None:
    rooms: dict[Any, np.ndarray] = {}

    def room(x: np.ndarray, what: str) -> np.ndarray:
        return rooms.setdefault((what, x.shape, x.dtype), np.empty(x.shape, x.dtype))

    x = rng.standard_normal((3, 4))
    with pytest.raises(GradientError, match="a later call changes dx, as an earlier one returned it"):
        notes_of_function(lambda x: 3 * x, lambda dy, x: np.multiply(dy, 3, out=room(x, "dx")), x)
    with pytest.raises(GradientError, match="a later call changes the output, as an earlier one returned it"):
        notes_of_function(lambda x: np.multiply(x, 3, out=room(x, "y")), lambda dy, x: 3 * dy, x)


def test_a_gradient_in_the_memory_of_an_input_is_told(rng: np.random.Generator) -> None:
    b = np.zeros(4)  # a gradient of zero, but not in a new array
    with pytest.raises(GradientError, match="db lies in the memory of the input b"):
        notes_of_function(lambda x, b: x + 0 * b, lambda dy, x, b: (dy, b), rng.standard_normal((3, 4)), b)


def test_what_is_not_linear_in_dy_is_told() -> None:
    x = np.linspace(-1, 1, 6).reshape(2, 3)
    for seed in range(3):  # right at this dy, wrong at a larger one
        clipping = problem_of_function(np.sin, lambda dy, x: np.clip(dy, -3, 3) * np.cos(x), (x,), {})
        with pytest.raises(GradientError, match=r"dx is not linear in dy: at 8 dy it is \d\.\d+ times what"):
            notes_of(clipping, seed)
        doubling = problem_of_function(np.sin, lambda dy, x: (1 + np.any(abs(dy) > 4)) * dy * np.cos(x), (x,), {})
        with pytest.raises(GradientError, match="dx is not linear in dy: at 8 dy it is 16 times what it is at dy"):
            notes_of(doubling, seed)


def test_what_stays_without_dy_is_told(rng: np.random.Generator) -> None:
    def normalized(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        size = np.abs(dy).max()
        return size * (dy / size * np.cos(x))

    x = rng.standard_normal((2, 3))
    with pytest.raises(GradientError, match="dx holds nan where dy is zero everywhere"):
        notes_of_function(np.sin, normalized, x)
    with pytest.raises(GradientError, match=r"dx holds 0\.5 where dy is zero everywhere"):
        notes_of_function(np.sin, lambda dy, x: np.where(dy == 0, 0.5, dy * np.cos(x)), x)


def test_two_gradients_in_one_array_are_a_note(rng: np.random.Generator) -> None:
    x, y = rng.standard_normal((2, 3, 4))
    (note,) = notes_of_function(lambda x, y: x + y, lambda dy, x, y: (dy, dy), x, y)
    assert note == "dx and dy lie in the same memory: adding to one in place changes the other; a copy is safe"
    assert notes_of_function(lambda x, y: x + y, lambda dy, x, y: (dy, dy.copy()), x, y) == []


MASK = np.arange(12).reshape(3, 4) % 3 != 0
RIGHT: dict[str, tuple[Any, Any, tuple[tuple[int, ...], ...]]] = {
    "identity": (lambda x: x, lambda dy, x: dy, ((3, 4),)),
    "reshape, a view": (lambda x: x.reshape(-1), lambda dy, x: dy.reshape(x.shape), ((3, 4),)),
    "transpose, a view": (lambda x: x.T, lambda dy, x: dy.T, ((3, 4),)),
    "backwards, a view": (lambda x: x[::-1], lambda dy, x: dy[::-1], ((3, 4),)),
    "sum, broadcast": (lambda x: x.sum(0), lambda dy, x: np.broadcast_to(dy, x.shape), ((3, 4),)),
    "sum of all": (lambda x: x.sum(), lambda dy, x: dy * np.ones_like(x), ((3, 4),)),
    "outputs and gradients in lists": (
        lambda x, y: [x + y, x * y], lambda dy, x, y: [dy[0] + dy[1] * y, dy[0] + dy[1] * x], ((3, 4), (3, 4)),
    ),
    "a mask of its own": (lambda x: x * MASK, lambda dy, x: dy * MASK, ((3, 4),)),
    "a target of its own": (lambda x: np.sum((x - MASK) ** 2), lambda dy, x: 2 * dy * (x - MASK), ((3, 4),)),
    "a size of its own": (lambda x: np.mean(x**2), lambda dy, x: 2 * dy * x / 12, ((3, 4),)),
    "two and a size of its own": (lambda x: np.mean(x**2, 0), lambda dy, x: dy * x, ((2, 5),)),
    "standard deviation": (
        lambda x: x.std(1), lambda dy, x: (dy / x.std(1) / x.shape[1])[:, None] * (x - x.mean(1)[:, None]), ((3, 4),),
    ),
    "maximum": (
        lambda x: x.max(1), lambda dy, x: dy[:, None] * (np.arange(x.shape[1]) == x.argmax(1)[:, None]), ((3, 4),),
    ),
    "product of matrices": (lambda a, b: a @ b, lambda dy, a, b: (dy @ b.T, a.T @ dy), ((3, 4), (4, 2))),
    "inverse": (np.linalg.inv, lambda dy, a: -np.linalg.inv(a).T @ dy @ np.linalg.inv(a).T, ((3, 3),)),
    "nothing at all": (lambda x: 2 * x, lambda dy, x: 2 * dy, ((0, 4),)),
    "a number": (lambda x: x**3, lambda dy, x: 3 * x**2 * dy, ((),)),
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", RIGHT)
def test_no_false_alarm_and_no_note(name: str, dtype: type, rng: np.random.Generator) -> None:
    f, vjp, shapes = RIGHT[name]
    assert notes_of_function(f, vjp, *(rng.standard_normal(shape).astype(dtype) for shape in shapes)) == []


def test_a_gradient_that_is_all_round_off_is_no_alarm(rng: np.random.Generator) -> None:
    def centred(x: np.ndarray, b: np.ndarray) -> np.ndarray:
        return x + b - np.mean(x + b, -1, keepdims=True)

    def vjp(dy: np.ndarray, x: np.ndarray, b: np.ndarray) -> Any:
        dx = dy - np.mean(dy, -1, keepdims=True)
        return dx, dx.sum(-1, keepdims=True)

    assert notes_of_function(centred, vjp, rng.standard_normal((3, 50)), rng.standard_normal((3, 1))) == []


def test_an_iteration_that_stops_early_is_right_to_its_tolerance(rng: np.random.Generator) -> None:
    def root(x: np.ndarray, tolerance: float = 0.0) -> np.ndarray:
        y = np.ones_like(x)
        for _ in range(60):
            y = y + 0.1 * (x - y * y)
            if np.abs(x - y * y).max() < tolerance:
                break
        return y

    x = rng.uniform(1, 2, (3, 4))

    def half(dy: np.ndarray, x: np.ndarray) -> np.ndarray:  # u = dy / 2y by a fixed point that stops at 1e-3
        u, y = np.zeros_like(dy), np.sqrt(x)
        while np.abs(dy - 2 * y * u).max() > 1e-3:
            u = u + 0.2 * (dy - 2 * y * u)
        return u

    problem = problem_of_function(root, half, (x,), {})
    dy, grads = ask_backward(problem, 0)
    with pytest.raises(GradientError, match="not linear"):
        check_structure(problem, dy, grads, 0)
    assert check_structure(problem, dy, grads, 0, rtol=0.0, atol=5e-3) == []


def test_about_thirty_calls(rng: np.random.Generator) -> None:
    calls = []

    def linear(x: np.ndarray, w: np.ndarray) -> Any:
        calls.append("forward")
        return ops.linear(x, w)

    def linear_backward(dy: np.ndarray, cache: Any) -> Any:
        calls.append("backward")
        return ops.linear_backward(dy, cache)[:2]

    problem = problem_of_op(linear, linear_backward, (rng.standard_normal((2, 3)), rng.standard_normal((3, 4))), {})
    asked = ask_backward(problem, 0)
    calls.clear()
    check_structure(problem, *asked, 0)
    assert 20 < len(calls) < 45


def test_a_dropout_mask_kept_in_a_layer_is_told(rng: np.random.Generator) -> None:
    class Dropout(Linear):
        def forward(self, x: np.ndarray, generator: np.random.Generator) -> Any:
            y, cache = super().forward(x)
            self.mask = generator.random(y.shape) < 0.5
            return y * self.mask, cache

        def backward(self, dy: np.ndarray, cache: Any) -> Any:
            return super().backward(dy * self.mask, cache)

    layer = Dropout(3, 4, rng, dtype=np.float64)
    with pytest.raises(GradientError, match="changes when the forward is called once more"):
        notes_of(problem_of_layer(layer, (np.ones((5, 3)),), {"generator": np.random.default_rng(0)}))


def test_round_off_that_one_dy_does_not_show_raises_no_alarm() -> None:
    """Saturated attention with one query: its gradient is nothing but what cancels, and more of it at another dy."""
    entry = CATALOGUE["scaled_dot_product_attention: saturated"]
    sizes = {"B": 1, "H": 2, "T_q": 1, "d_k": 4, "T_k": 4, "d_v": 4}
    for seed in range(12, 24):
        assert check(entry.case(seed, np.float64, sizes).problem(), seed).ok
