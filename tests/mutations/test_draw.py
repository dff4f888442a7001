"""The draw is equal in every run, contains all kinds, and grows without losing mutations."""

from tests.mutations.draw import PACKAGES, drawn


def test_draw_is_reproducible_and_contains_all_kinds() -> None:
    first, again = drawn("layers", 40), drawn("layers", 40)
    assert [one.name for one in first] == [one.name for one in again]
    assert len({one.name for one in first}) == 40
    assert len({one.kind for one in first}) >= 15
    assert {one.name for one in drawn("layers", 40, seed=1)} != {one.name for one in first}


def test_larger_draw_contains_smaller_draw() -> None:
    assert {one.name for one in drawn("layers", 20)} < {one.name for one in drawn("layers", 40)}


def test_at_least_three_hundred_are_drawn() -> None:
    assert sum(PACKAGES.values()) >= 300
