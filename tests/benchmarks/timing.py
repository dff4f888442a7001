"""Helpers of the longer benchmarks. The main benchmark is `python -m tests.benchmarks`."""

from collections.abc import Iterator, Sequence
from typing import Any


def torch_with(threads: int) -> Any:
    """Import PyTorch and set its number of threads; without PyTorch, exit and print how to install it."""
    try:
        import torch
    except ImportError:
        raise SystemExit("this benchmark needs PyTorch: pip install '.[bench]'") from None
    torch.set_num_threads(threads)
    return torch


def table(head: Sequence[str], rows: Iterator[Sequence[str]] | Sequence[Sequence[str]]) -> None:
    """Print a Markdown table; each row is printed as soon as it is measured."""
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head), flush=True)
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)
