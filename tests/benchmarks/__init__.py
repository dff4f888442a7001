"""The benchmark `python -m tests.benchmarks`: which library does the same work faster on this machine.

Other programs always use the machine too, so only ratios within one run are reliable. Each contender runs in a
separate process, as its users run it. The contenders take turns in changing order. The ratio of two contenders is
computed in each round, where a slow minute slows both; the result is the median over the rounds. Before the timing,
all contenders must compute the same numbers.

    work.py      the work, and our code for it
    worker.py    a contender's process
    race.py      turns, medians, ratios
    report.py    tables, JSON, the plot

The other contenders (PyTorch, JAX, autograd, transformers) are in `tests/benchmarks/peers`.
"""
