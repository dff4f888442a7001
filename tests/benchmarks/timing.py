"""What the longer benchmarks share. `python -m tests.benchmarks` is the main one."""

from collections.abc import Iterator, Sequence
from typing import Any


def torch_with(threads: int) -> Any:
    """PyTorch, held to a number of threads, or a line on how to get it."""
    try:
        import torch
    except ImportError:
        raise SystemExit("this compares with PyTorch: pip install '.[bench]'") from None
    torch.set_num_threads(threads)
    return torch


def table(head: Sequence[str], rows: Iterator[Sequence[str]] | Sequence[Sequence[str]]) -> None:
    """Print a Markdown table, line by line, as the rows come."""
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head), flush=True)
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)
