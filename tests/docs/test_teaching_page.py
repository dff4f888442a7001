"""docs/teaching.md and docs/slides.md: minutes, exercises and mistakes agree with the book."""

import re
from pathlib import Path

import numpy as np

import numpy_attention as na
from numpy_attention.tutor import MISTAKES
from numpy_attention.tutor.catalogue import EXERCISES
from numpy_attention.tutor.page import exercise_texts

ROOT = Path(__file__).parents[2]
TEACHING = (ROOT / "docs" / "teaching.md").read_text("utf-8")


def rows_after(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading."""
    table = TEACHING.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|")]
    return rows[2:]


def minutes_of(number: str) -> int:
    """The minutes at the top of a tutorial."""
    (page,) = ROOT.glob(f"tutorials/{int(number):02d}-*.md")
    found = re.search(r"\*\*You need\*\*.*?About\s+(\d+)\s+minutes", page.read_text("utf-8"), re.DOTALL)
    assert found
    return int(found[1])


def test_minutes_and_exercises_of_a_week_are_those_of_its_tutorials() -> None:
    rows = rows_after("Four weeks")
    assert [row[0] for row in rows] == ["1", "2", "3", "4"]
    for _, tutorials, minutes, exercises, _ in rows:
        numbers = re.findall(r"\d+", tutorials)
        assert int(minutes) == sum(map(minutes_of, numbers))
        for name in re.findall(r"`(\w+)`", exercises):
            assert str(exercise_texts()[name].tutorial) in numbers, name


def test_named_mistakes_are_known_and_belong_to_the_exercise() -> None:
    for exercise, _, mistake, *_ in rows_after("What students get wrong"):
        assert MISTAKES[mistake.partition("`]")[0].strip("[`")] in EXERCISES[exercise.strip("`")].mistakes


def test_code_of_the_slides_is_attention_and_its_backward(rng: np.random.Generator) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "slides.md").read_text("utf-8"), re.DOTALL)
    q, k, v, dy = (rng.standard_normal(shape) for shape in ((4, 3), (5, 3), (5, 2), (4, 2)))
    names = {"np": np, "softmax": lambda scores: na.softmax(scores)[0], "q": q, "k": k, "v": v, "dy": dy, "d_k": 3}
    for block in blocks:
        exec(block, names)
    y, cache = na.scaled_dot_product_attention(q, k, v)
    expected = na.scaled_dot_product_attention_backward(dy, cache)
    np.testing.assert_allclose(names["y"], y, rtol=1e-12)
    of_function = names["attention_backward"](dy, (q, k, v, cache.weights))
    for name, by_package, by_function in zip(("dq", "dk", "dv"), expected, of_function):
        np.testing.assert_allclose(names[name], by_package, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(by_function, by_package, rtol=1e-12, atol=1e-14)
