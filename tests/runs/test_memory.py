"""Freed memory that is kept: asked of glibc alone."""

import ctypes
import sys

import pytest

from numpy_attention.runs.memory import keep_freed_memory


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc has these knobs")
def test_every_knob_is_turned_where_there_are_knobs(monkeypatch):
    turned = {}

    class Library:
        def mallopt(self, knob, value):
            turned[knob] = value
            return 1

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library())
    assert keep_freed_memory()
    assert turned == {-3: 2**30, -1: 2**31 - 1, -8: 1}


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc has these knobs")
def test_a_single_knob_that_does_not_turn_is_told(monkeypatch):
    class Library:
        def mallopt(self, knob, value):
            return int(knob != -3)

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library())
    assert not keep_freed_memory()


def test_another_system_or_library_is_left_alone(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert not keep_freed_memory()
    monkeypatch.setattr(sys, "platform", "win32")
    assert not keep_freed_memory()
