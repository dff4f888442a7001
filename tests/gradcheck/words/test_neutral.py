"""A backward that is right at ones, or at a symmetric matrix, says what it left out; a control keeps chance out."""

import numpy as np

from tests.gradcheck.words.test_branches import told


def test_a_vector_of_ones_is_named_only_if_other_constants_are_not_right(rng: np.random.Generator) -> None:
    x, t = rng.standard_normal((3, 5)), rng.standard_normal(5)

    def scaled(x: np.ndarray, t: np.ndarray) -> np.ndarray:
        return np.asarray(t * np.cumsum(np.sin(x) * t, axis=1))

    def missing(dy: np.ndarray, x: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        sums = np.flip(np.cumsum(np.flip(dy * t, 1), 1), 1)
        return sums * np.cos(x), (dy * np.cumsum(np.sin(x) * t, axis=1) + sums * np.sin(x)).sum(0)

    words = told(scaled, missing, x, t)
    assert "t is left out" in words or "right when t is all ones, and not when it is all 1.37" in words


def test_a_vector_that_is_right_at_every_constant_comes_in_at_the_wrong_place(rng: np.random.Generator) -> None:
    def after(x: np.ndarray, t: np.ndarray) -> np.ndarray:
        return np.asarray(np.tanh(np.cumsum(x, axis=1)) * t)

    def before(dy: np.ndarray, x: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        y = np.tanh(np.cumsum(x, axis=1))
        inner = np.flip(np.cumsum(np.flip(dy * (1 - y * y), 1), 1), 1)
        return inner * t, (dy * y).sum(0)

    words = told(after, before, rng.standard_normal((3, 5)), rng.standard_normal(5))
    assert "right when t is the same everywhere, wrong when it is not: t comes in at the wrong place" in words


def test_nothing_is_said_of_ones_where_the_mistake_is_at_a_branch(rng: np.random.Generator) -> None:
    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.asarray(dy * 2 * x * np.where(x < 0, np.sin(7 * x), 1))

    assert "all ones" not in told(lambda x: x * x, vjp, rng.standard_normal(9))


def test_a_transpose_that_is_missing_within_a_function(rng: np.random.Generator) -> None:
    def f(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return np.asarray(np.tanh(x @ w))

    def vjp(dy: np.ndarray, x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        d = dy * (1 - np.tanh(x @ w) ** 2)
        return d @ w, x.T @ d

    words = told(f, vjp, rng.standard_normal((3, 4)), rng.standard_normal((4, 4)))
    assert "right when w is symmetric, wrong when it is not: a transpose of w is missing" in words


def test_a_kernel_that_is_not_reversed(rng: np.random.Generator) -> None:
    def f(x: np.ndarray, k: np.ndarray) -> np.ndarray:
        return np.asarray(sum(k[j] * x[:, j:j + 6] for j in range(3)))

    def vjp(dy: np.ndarray, x: np.ndarray, k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        dx = np.zeros_like(x)
        for j in range(3):
            dx[:, j:j + 6] += k[2 - j] * dy
        return dx, np.stack([(dy * x[:, j:j + 6]).sum() for j in range(3)])

    words = told(f, vjp, rng.standard_normal((2, 8)), rng.standard_normal(3))
    assert "right when k reads the same in both directions along axis 0" in words


def test_a_mask_that_is_upside_down_in_the_backward(rng: np.random.Generator) -> None:
    keep = rng.random((3, 5)) < 0.5

    def f(x: np.ndarray, keep: np.ndarray) -> np.ndarray:
        return np.where(keep, np.sin(x), 0.0)

    def upside_down(dy: np.ndarray, x: np.ndarray, keep: np.ndarray) -> np.ndarray:
        return np.where(keep, 0.0, dy * np.cos(x))

    said = told(f, upside_down, rng.standard_normal((3, 5)), keep)
    assert "right with ~keep in the place of keep: the backward takes keep the other way round" in said


def test_a_mask_that_hides_a_term_that_it_does_not_hide_in_the_function(rng: np.random.Generator) -> None:
    keep = rng.random((3, 5)) < 0.5

    def f(x: np.ndarray, add: np.ndarray, keep: np.ndarray) -> np.ndarray:
        return np.where(keep, x, 0.0) + np.sin(add)

    def too_much(dy: np.ndarray, x: np.ndarray, add: np.ndarray, keep: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.where(keep, dy, 0.0), np.where(keep, dy * np.cos(add), 0.0)

    said = told(f, too_much, *rng.standard_normal((2, 3, 5)), keep)
    assert "the backward gives zero where keep hides, and there it must not be zero" in said
