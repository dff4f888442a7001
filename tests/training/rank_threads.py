"""Ranks for tests: threads of one process that exchange messages as processes do through MPI."""

import threading
from types import SimpleNamespace

import numpy as np

from numpy_attention.training.mpi import Ranks


class Meeting:
    """A barrier: threads that have met are not disturbed when one of them fails afterwards."""

    def __init__(self, size):
        self.size, self.waiting, self.met, self.failed = size, 0, 0, False
        self.changed = threading.Condition()

    def wait(self):
        with self.changed:
            before = self.met
            self.waiting += 1
            if self.waiting == self.size:
                self.waiting, self.met = 0, before + 1
                self.changed.notify_all()
            elif not self.changed.wait_for(lambda: self.met > before or self.failed, 600) or self.met == before:
                raise threading.BrokenBarrierError("another rank has failed, or does not come")

    def fail(self):
        with self.changed:
            self.failed = True
            self.changed.notify_all()


class Comm:
    """The interface of mpi4py's communicator, built on a table shared by all threads."""

    def __init__(self, rank, meeting, table):
        self.rank, self.meeting, self.table = rank, meeting, table

    def Get_rank(self):
        return self.rank

    def Get_size(self):
        return len(self.table)

    def Split_type(self, kind):
        return self

    def Barrier(self):
        self.meeting.wait()

    def allgather(self, value):
        self.table[self.rank] = value
        self.Barrier()
        values = list(self.table)
        self.Barrier()  # nobody writes before everybody has read
        return values

    def Allreduce(self, in_place, buffer):
        buffer[...] = sum(self.allgather(buffer.copy()))

    def Bcast(self, array):
        array[...] = self.allgather(array.copy())[0]


def on_ranks(size, function):
    """The values that `function(ranks)` returns, or the errors that it raises, on each of `size` ranks."""
    meeting, table = Meeting(size), [None] * size
    results = [None] * size

    def work(rank):
        mpi = SimpleNamespace(COMM_WORLD=Comm(rank, meeting, table), COMM_TYPE_SHARED=None, IN_PLACE=None)
        try:
            results[rank] = function(Ranks(mpi))
        except (Exception, SystemExit) as error:
            results[rank] = error
            meeting.fail()

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def same(values):
    """The single value on which all ranks agree."""
    for value in values[1:]:
        np.testing.assert_equal(value, values[0])
    return values[0]
