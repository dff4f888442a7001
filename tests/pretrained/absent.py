"""Packages that are not installed."""

import builtins


def without(monkeypatch, *packages):
    """Let an import of these fail, as if they were not there."""
    usual = builtins.__import__

    def refusing(name, *arguments):
        if name.split(".")[0] in packages:
            raise ImportError(f"No module named {name!r}")
        return usual(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", refusing)
