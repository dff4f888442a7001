"""One test for many files or names: the rule is checked for each of them, and every failure is reported.

    @each(FILES, name_of)
    def test_a_file_is_short(path: Path) -> None:
        assert ...

Use it for fast rules of about a millisecond, which do not need a separate test for each file.
"""

from collections.abc import Callable, Iterable
from typing import Any


def each(things: Iterable[Any], name_of: Callable[[Any], str] = str) -> Callable[[Callable[[Any], None]], Any]:
    """Make one test that checks a rule for all things."""
    many = list(things)
    assert many, "nothing to check"

    def made(rule: Callable[[Any], None]) -> Callable[[], None]:
        def test() -> None:
            found = []
            for thing in many:
                try:
                    rule(thing)
                except AssertionError as error:
                    found.append(f"{name_of(thing)}: {error}")
                except Exception as error:
                    error.add_note(name_of(thing))
                    raise
            assert not found, "\n".join(found)

        test.__name__, test.__doc__, test.__module__ = rule.__name__, rule.__doc__, rule.__module__
        return test

    return made
