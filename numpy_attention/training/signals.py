"""Ctrl-C and SIGTERM ask a run to stop after the current step; a second signal stops it at once.

An interrupted step would have changed some parameters and not others. So the first signal is only recorded: the step
ends, the run saves and prints how to resume it. After the first signal, the signals have their old effect again.
"""

import signal
import threading
from types import FrameType
from typing import Any, Self


class StopSignals:
    """Inside this context, `name` is None until a signal arrives, then the name of the signal."""

    def __init__(self) -> None:
        self.name: str | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # Python handles signals only there
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *error: object) -> None:
        self._restore()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.name = signal.Signals(number).name
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
