"""The progress of a run: a bar if tqdm is installed and standard error is a terminal, otherwise lines."""

import importlib
import sys
import time
from typing import Any, Self

from numpy_attention.errors import install

SECONDS = 30  # without a bar, a line at least so often


class Progress:
    """Shows finished steps, loss, speed and remaining time; `line` prints a permanent line."""

    def __init__(self, steps: int, done: int, unit: str = "step") -> None:
        self.steps = steps
        self.start = time.perf_counter()
        self.first = self.done = done
        self.bar: Any = None
        self.next_line = 0.0  # without a bar: when the next line is due, the first one at once
        if sys.stderr.isatty():
            try:
                tqdm = importlib.import_module("tqdm").tqdm
            except ImportError:
                print(f"({install('tqdm')} adds a progress bar)", file=sys.stderr)
            else:
                self.bar = tqdm(total=steps, initial=done, unit=unit, dynamic_ncols=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.close()

    def advance(self, entry: dict[str, Any] | None) -> None:
        """Count one more step; `entry` is its line of the log, if any."""
        self.done += 1
        if self.bar is not None:
            if entry is not None:
                self.bar.set_postfix_str(f"loss {entry['loss']:.3f}, {entry['tokens_per_second']:,.0f} tokens/s", False)
            self.bar.update(1)
        elif entry is not None and time.perf_counter() >= self.next_line:
            self.line(entry)

    def line(self, entry: dict[str, Any]) -> None:
        """Print a permanent line with the numbers of an evaluation."""
        figures = [f"{name} {value:.4f}" for name, value in entry.items() if name == "loss" or name.startswith("val_")]
        self.next_line = time.perf_counter() + SECONDS
        text = f"step {entry['step']:>{len(str(self.steps))}}/{self.steps}  " + "  ".join(figures)
        text += f"  {entry['tokens_per_second']:,.0f} tokens/s"
        if self.bar is not None:
            self.bar.write(text)
            return
        if self.done > self.first:
            left = (time.perf_counter() - self.start) / (self.done - self.first) * (self.steps - self.done)
            text += f"  {left:.0f} s left"
        print(text, flush=True)
