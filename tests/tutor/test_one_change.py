"""A wrong answer that differs from the page's solution in one place: the tutor finds this place."""

from pathlib import Path

import pytest

from numpy_attention.tutor.catalogue import EXERCISES, exercise_module
from numpy_attention.tutor.one_change import changed_solutions
from tests.tutor.hand_in import tutor_text

pytestmark = pytest.mark.usefixtures("searched_to_the_end")
ATTENTION = """dweights = dy @ v.swapaxes(-1, -2)
    dscores = {}
    dv = weights.swapaxes(-1, -2) @ dy
    return scale * dscores @ k, {} * dscores.swapaxes(-1, -2) @ q, dv"""
SOFTMAX = "weights * (dweights - (dweights * weights).sum(-1, keepdims=True))"
NORM = """axes = tuple(range(dy.ndim - 1))
    g = dy * gamma
    dx = r * (g - g.{0}(-1, keepdims=True) - x_hat * (g * x_hat).{0}(-1, keepdims=True))
    return dx, (dy * x_hat).sum(axes), dy.sum(axes)"""
DELTA = """dnew = k @ dS_new
    dv = beta * dnew
    dold = {}
    dk = new @ dS_new.swapaxes(-1, -2) + dold @ S.swapaxes(-1, -2)
    return dS_new + k.swapaxes(-1, -2) @ dold, dk, dv, (dnew * {}).sum(-1, keepdims=True)"""
STEP = """for name, p in self.parameters.items():
            self.steps += 1
            g, m, v = grads[name], self.m[name], self.v[name]
            m *= self.beta_1
            m += (1 - self.beta_1) * g
            v *= self.beta_2
            v += (1 - self.beta_2) * g**2
            root = np.sqrt(v / (1 - self.beta_2**self.steps))
            p -= self.learning_rate * m / (1 - self.beta_1**self.steps) / (root + self.eps)"""


@pytest.mark.parametrize(("name", "answer", "words"), [
    ("softmax", "return y * (dy - (dy * y).mean(axis=axis, keepdims=True))", "`mean` is used in place of `sum`"),
    ("attention", ATTENTION.format(SOFTMAX, "1"), "`scale` is left out of `scale * dscores.swapaxes(-1, -2)`"),
    ("attention", ATTENTION.format("weights * dweights - (dweights * weights).sum(-1, keepdims=True)", "scale"),
     "`weights` is a factor of `dweights` alone"),
    ("delta_rule", DELTA.format("dv", "(v - old)"), "the sign of `-dv` is left out"),
    ("adam", STEP, "the line `self.steps += 1` is inside the loop that comes after it"),
    ("cross_entropy", "p, q, counted, N = cache\n    return dloss * counted * (p - q) / counted.size",
     "`counted.size` is used in place of `N`"),
    ("embedding", "np.add.at(dtable, ids, dy.sum(-1, keepdims=True))\n    return dtable", "is used in place of `dy`"),
])
def test_change_is_found(tmp_path: Path, name: str, answer: str, words: str) -> None:
    output = tutor_text(tmp_path, name, answer)
    assert "A right solution with one change gives the same numbers: " in output, output
    assert words in output


@pytest.mark.slow
def test_two_changes_are_found(tmp_path: Path) -> None:
    output = tutor_text(tmp_path, "layer_norm", NORM.format("sum"))
    assert "A right solution with 2 changes gives the same numbers: (1) in" in output
    assert output.count("`sum` is used in place of `mean`") == 2


def test_right_arithmetic_in_another_form_has_no_change(tmp_path: Path) -> None:
    output = tutor_text(tmp_path, "softmax", "return 3 * y * (dy - (dy * y).sum(axis=axis, keepdims=True)) + 0.5")
    assert "A right solution" not in output


@pytest.mark.parametrize("name", ["top_p", pytest.param("byte_pairs", marks=pytest.mark.slow)])
def test_every_change_leaves_a_solution_that_ends(name: str) -> None:
    exercise, subject = EXERCISES[name], next(iter(EXERCISES[name].quizzes), "")
    for i, (words, made) in enumerate(changed_solutions(exercise, exercise_module(name))):
        assert words[0]
        if subject and i % 7 == 0:
            exercise.quizzes[subject].outcome(getattr(made, subject))


def test_changes_leave_the_solution_as_it_was() -> None:
    exercise, module = EXERCISES["softmax"], exercise_module("softmax")
    first, second = ([words for words, _ in changed_solutions(exercise, module, True)] for _ in range(2))
    assert first == second != []
