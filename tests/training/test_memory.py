"""Keeping freed memory: a setting of glibc only."""

import ctypes
import sys

import pytest

from numpy_attention.training.memory import keep_freed_memory


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc has these knobs")
def test_all_settings_of_glibc_are_set(monkeypatch):
    turned = {}

    class Library:
        def mallopt(self, knob, value):
            turned[knob] = value
            return 1

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library())
    assert keep_freed_memory()
    assert turned == {-3: 2**30, -1: 2**31 - 1, -8: 1}


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc has these knobs")
def test_reports_a_setting_that_cannot_be_set(monkeypatch):
    class Library:
        def mallopt(self, knob, value):
            return int(knob != -3)

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library())
    assert not keep_freed_memory()


def test_does_nothing_on_other_systems_and_libraries(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert not keep_freed_memory()
    monkeypatch.setattr(sys, "platform", "win32")
    assert not keep_freed_memory()
