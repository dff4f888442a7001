"""The fixture `device`: the stand-in by default, or the backend from the command line."""

import pytest

from tests.backend.devices import Device


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> Device:
    return Device(request.config.getoption("--backend"))
