"""The draw is the same in every run, has all kinds, and keeps what it has drawn."""

from tests.mutations.draw import PACKAGES, drawn


def test_the_draw_is_repeated_and_has_as_many_of_each_kind_as_there_are() -> None:
    first, again = drawn("layers", 40), drawn("layers", 40)
    assert [one.name for one in first] == [one.name for one in again]
    assert len({one.name for one in first}) == 40
    assert len({one.kind for one in first}) >= 15
    assert {one.name for one in drawn("layers", 40, seed=1)} != {one.name for one in first}


def test_more_is_drawn_in_addition_to_less() -> None:
    assert {one.name for one in drawn("layers", 20)} < {one.name for one in drawn("layers", 40)}


def test_three_hundred_and_more_are_drawn() -> None:
    assert sum(PACKAGES.values()) >= 300
