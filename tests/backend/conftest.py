"""`device`: where the tests of this folder compute, the stand-in unless the command line says otherwise."""

import pytest

from tests.backend.devices import Device


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> Device:
    return Device(request.config.getoption("--backend"))
