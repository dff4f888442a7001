"""The first signal is recorded; the second ends the program."""

import os
import signal
import threading

import pytest

from numpy_attention.training.signals import StopSignals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_first_signal_is_recorded_and_the_second_has_its_old_effect(number):
    before = signal.getsignal(number)
    seen = []
    signal.signal(number, lambda *arguments: seen.append("before"))
    try:
        with StopSignals() as signals:
            assert signals.name is None
            os.kill(os.getpid(), number)
            assert signals.name == number.name
            assert seen == []
            os.kill(os.getpid(), number)
            assert seen == ["before"]
        os.kill(os.getpid(), number)
        assert seen == ["before", "before"]
    finally:
        signal.signal(number, before)


def test_handlers_are_restored_without_a_signal():
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with StopSignals() as signals:
        assert signal.getsignal(signal.SIGINT) != handlers[0]
    assert signals.name is None
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers


def test_other_threads_train_without_signal_handlers():
    names = []

    def work():
        with StopSignals() as signals:
            names.append(signals.name)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert names == [None]
