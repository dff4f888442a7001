"""The benchmark `python -m tests.benchmarks`: this book beside PyTorch on this machine.

Other programs always use the machine too, so only ratios within one run are reliable. Each contender runs in a process
of its own, as its users run it. The contenders take turns. The ratio of two contenders is computed in each round, where
a slow minute slows both, and the result is the median over the rounds. Before the timing, all contenders must compute
the same numbers.

    __main__.py    turns, medians, tables
    worker.py      the process of a contender
    ours.py        the work, and the code of this book for it
    theirs.py      the same work with PyTorch and transformers

Two scripts write the tables of a page each: recall.py and recurrence_speed.py.
"""
