"""A contender closes its resources at the end of its process; a test closes them at the end of the test."""

from collections.abc import Iterator

import pytest

from tests.benchmarks.work import PROCESS_RESOURCES


@pytest.fixture(autouse=True)
def close_process_resources() -> Iterator[None]:
    yield
    PROCESS_RESOURCES.close()
