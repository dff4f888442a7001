"""Mistakes in differences and in the gradient of several workers, in the form in which a student writes them."""

import pytest

from tests.grade.hand_in import tutor_text

LOOP = """dx = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[i] = h
        dx[i] = {}
    return dx"""
JOIN = "return {{name: sum({} for n, own in zip(counts, grads)){} for name in grads[0]}}"


@pytest.mark.parametrize(("name", "exercise", "answer"), [
    ("one_sided", "differences", LOOP.format("((f(x + step) - f(x)) * dy).sum() / h")),
    ("divided_by_one_h", "differences", LOOP.format("((f(x + step) - f(x - step)) * dy).sum() / h")),
    ("dy_left_out", "differences", LOOP.format("(f(x + step) - f(x - step)).sum() / (2 * h)")),
    ("elements_kept_apart", "differences", "return (f(x + h) - f(x - h)) * dy / (2 * h)"),
    ("mean_of_the_means", "several_workers", JOIN.format("own[name]", " / len(grads)")),
    ("sum_of_the_means", "several_workers", JOIN.format("own[name]", "")),
    ("weighted_sum_not_divided", "several_workers", JOIN.format("n * own[name]", "")),
    ("nan_without_places", "several_workers", JOIN.format("n * own[name]", " / np.sum(counts)")),
])
def test_mistake_is_named(name: str, exercise: str, answer: str) -> None:
    output = tutor_text(exercise, answer)
    assert f"a known mistake, `{name}`" in output, output


def test_input_that_is_changed_and_not_restored_is_reported() -> None:
    answer = """dx = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        x[i] += h
        above = (f(x) * dy).sum()
        x[i] -= 2 * h
        dx[i] = (above - (f(x) * dy).sum()) / (2 * h)
    return dx"""
    assert "the arguments were changed in place" in tutor_text("differences", answer + "  # moved and left")
