"""Examples: a seed makes the same one again; of 25, most mistakes about single values show in one."""

from collections.abc import Callable

import numpy as np
import pytest

from numpy_attention.gradcheck import GradientError, gradcheck_vjp
from numpy_attention.gradcheck.examples import FEW, DrawnInputs, draw_example, example_sizes

ATTENTION = "q: B H T_q d_k, k: B H_kv T_k d_k, v: B H_kv T_k d_v, mask?: bool T_q T_k; H = G*H_kv"


def test_a_seed_makes_the_same_example_again() -> None:
    first, second, other = (draw_example(ATTENTION, seed) for seed in (3, 3, 5))
    assert first.sizes == second.sizes == example_sizes(ATTENTION, 3)
    assert all(np.array_equal(first[name], second[name]) for name in first if first[name] is not None)
    assert other.sizes != first.sizes or not np.array_equal(other["q"], first["q"])


def test_sizes_differ_and_arrays_stay_small() -> None:
    for seed in range(40):
        drawn = draw_example(ATTENTION, seed)
        assert len(set(drawn.sizes.values())) == len(drawn.sizes)
        assert drawn["q"].shape[1] == drawn.sizes["G"] * drawn["k"].shape[1]
        assert draw_example(ATTENTION, seed, at_least={"T_q": 9})["q"].shape[2] >= 9
    assert all(sum(x.size for x in draw_example("x: A B C, y: C D", seed).values()) <= FEW for seed in range(40))


def test_an_optional_argument_is_sometimes_absent_and_a_quarter_is_usual() -> None:
    drawn = [draw_example("x: B d, b?: d", seed) for seed in range(40)]
    assert 5 < sum(example["b"] is None for example in drawn) < 25
    assert sum(example.special for example in drawn) == 30
    assert not any(draw_example("x: d", seed, special=False).special for seed in range(4))


def test_what_made_an_example_is_printed() -> None:
    assert repr(draw_example("x: B d, b?: d", 1, fixed={"B": 2, "d": 3}, dtype=np.float32)).startswith(
        "<sizes B=2, d=3; seed 1; special values; x: float32 (2, 3), b: "
    )
    assert repr(draw_example("x: d", 4, fixed={"d": 3})) == "<sizes d=3; seed 4; x: float64 (3,)>"


Place = Callable[[np.ndarray], np.ndarray]


def rows(holds: Callable[[np.ndarray], np.ndarray]) -> Place:
    return lambda x: np.broadcast_to(holds(x)[..., None], x.shape)


def size(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.sqrt((x * x).mean(-1)))


def like_the_one_before(x: np.ndarray) -> np.ndarray:
    same = np.zeros(x.shape, dtype=bool)
    same[..., 1:] = x[..., 1:] == x[..., :-1]
    return same


def at_the_top(x: np.ndarray) -> np.ndarray:
    return np.asarray(x == x.max(-1, keepdims=True))


# Where the derivative of x + x^3 is wrong by a tenth.
PLANTED: dict[str, Place] = {
    "at zero": lambda x: x == 0,
    "at minus zero": lambda x: (x == 0) & np.signbit(x),
    "at one": lambda x: x == 1,
    "at minus one": lambda x: x == -1,
    "at whole numbers": lambda x: (x == np.round(x)) & (x != 0),
    "beyond three": lambda x: np.abs(x) > 3,
    "beyond minus ten": lambda x: x < -10,
    "near zero": lambda x: (np.abs(x) < 1e-4) & (x != 0),
    "in large rows": rows(lambda x: size(x) > 8),
    "in small rows": rows(lambda x: (size(x) < 1e-2) & (size(x) > 0)),
    "at a tie at the top": lambda x: at_the_top(x) & (at_the_top(x).sum(-1, keepdims=True) > 1),
    "at equal neighbours": like_the_one_before,
    "in rows all alike": rows(lambda x: (x == x[..., :1]).all(-1) & (x.shape[-1] > 1)),
    "in rows of zeros": rows(lambda x: (x == 0).all(-1)),
    "where all is negative": lambda x: np.full(x.shape, (x < 0).all() & (x.size > 2)),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_mistake_about_a_value_shows_in_one_of_25_examples(name: str) -> None:
    def wrong(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.asarray(dy * (1 + 3 * x * x) * np.where(PLANTED[name](x), 1.1, 1.0))

    def right(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.asarray(dy * (1 + 3 * x * x))

    caught = 0
    for start in (0, 25, 50):
        examples = [draw_example("x: ... d", seed) for seed in range(start, start + 25)]
        caught += any(fails(wrong, drawn) for drawn in examples)
        assert not any(fails(right, drawn) for drawn in examples[:5])
    assert caught >= 2


def test_a_mistake_where_two_arguments_agree_shows_too() -> None:
    def wrong(dy: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return dy * y, dy * x * np.where(x == y, 1.1, 1.0)

    def fails_at(seed: int) -> bool:
        try:
            gradcheck_vjp(lambda x, y: x * y, wrong, draw_example("x: B d, y: B d", seed))
        except GradientError as error:
            return "dy wrong" in str(error)
        return False

    assert any(fails_at(seed) for seed in range(25))


def fails(vjp: Callable[..., np.ndarray], drawn: DrawnInputs) -> bool:
    try:
        gradcheck_vjp(lambda x: x + x**3, vjp, drawn)
    except GradientError:
        return True
    return False
