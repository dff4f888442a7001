"""Keeping freed memory: a setting of glibc only."""

import ctypes
import sys

import pytest

from numpy_attention.training.memory import keep_freed_memory


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc has these settings")
@pytest.mark.parametrize("accepted", [0, 1])
def test_all_settings_of_glibc_are_set(monkeypatch, accepted):
    settings = {}

    class Library:
        def mallopt(self, name, value):
            settings[name] = value
            return accepted

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library())
    assert keep_freed_memory() == bool(accepted)
    assert settings == {-3: 2**30, -1: 2**31 - 1, -8: 1} if accepted else {-3: 2**30}


def test_does_nothing_on_other_systems_and_libraries(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert not keep_freed_memory()
    monkeypatch.setattr(sys, "platform", "win32")
    assert not keep_freed_memory()
