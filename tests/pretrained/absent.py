"""Simulates packages that are not installed."""

import sys


def without(monkeypatch, *packages):
    """Make the import of these packages fail, as if they were not installed."""
    for name in [*sys.modules, *packages]:
        if name.split(".")[0] in packages:
            monkeypatch.setitem(sys.modules, name, None)
