"""The benchmark behind `python -m tests.benchmarks`: who is faster at the same work, on this machine, now.

A machine is never quiet for long, so only ratios within one run mean anything. Each contender lives in a process of its
own, as its users run it; they take turns in changing order, and the ratio of two is the median, over the rounds, of
their ratio within a round. A slow minute then slows both sides of it. Before anything is timed all must have computed
the same numbers.

    work.py      what is to be done, and how we do it
    worker.py    a contender's process
    race.py      the turns, the medians, the ratios
    report.py    tables, JSON, the plot

The other contenders (PyTorch, JAX, autograd) are in `tests/benchmarks/peers` of the source tree.
"""
