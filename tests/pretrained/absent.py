"""Packages that are not installed."""

import sys


def without(monkeypatch, *packages):
    """Let an import of these fail, as if they were not there."""
    for name in [*sys.modules, *packages]:
        if name.split(".")[0] in packages:
            monkeypatch.setitem(sys.modules, name, None)
