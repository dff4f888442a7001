"""What a contender keeps to the end of its process ends here with the test."""

from collections.abc import Iterator

import pytest

from tests.benchmarks.work import UNTIL_THE_END


@pytest.fixture(autouse=True)
def nothing_is_kept() -> Iterator[None]:
    yield
    UNTIL_THE_END.close()
