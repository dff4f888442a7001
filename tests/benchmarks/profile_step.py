"""The time of each op in a training step: one half of the batch on one thread.

    python -m tests.benchmarks.profile_step      # writes profile_step.json in three minutes
    python -m tests.benchmarks.performance_page

Every op is timed, which adds half a microsecond per call.
"""

import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numpy_attention.files import atomic_write
from numpy_attention.layers import feed_forward
from numpy_attention.models.head import Head
from numpy_attention.training.memory import keep_freed_memory
from numpy_attention.training.optimizers import AdamW
from numpy_attention.training.parallel import Workers, loss_and_gradients, single_threaded_blas
from tests.benchmarks.work import SIZES, model_and_batches

FOUND = Path(__file__).with_suffix(".json")
STEPS = {"nano": 400, "micro": 40, "small": 6, "gpt2": 8}
PARTS = {
    "linear maps": ("linear",),
    "logits of the tied table": (),  # the methods of Head
    "attention": ("scaled_dot_product_attention", "tiled_attention"),
    "GELU": ("gelu",),
    "layer norm": ("layer_norm",),
    "embedding": ("embedding",),
    "loss": ("cross_entropy", "linear_cross_entropy"),
}
ADAM, REST, ALL = "AdamW", "the rest: Python, checks, residual sums", "all"


def add_timers(spent: dict[str, float]) -> None:
    """Replace every function of PARTS and its backward, in all our modules, by a function that is timed."""
    part_of = {}
    for part, names in PARTS.items():
        for name in names:
            part_of |= {name: part, f"{name}_backward": part}
    for module in [m for name, m in sys.modules.items() if name.startswith("numpy_attention")]:
        for name, value in list(vars(module).items()):
            if name in part_of and callable(value):
                setattr(module, name, _timed(value, part_of[name], spent))
    forward, backward = feed_forward.ACTIVATIONS["gelu"]
    for method in ("forward", "gradients"):
        setattr(Head, method, _timed(getattr(Head, method), "logits of the tied table", spent))
    feed_forward.ACTIVATIONS["gelu"] = _timed(forward, "GELU", spent), _timed(backward, "GELU", spent)


def _timed(function: Callable[..., Any], part: str, spent: dict[str, float]) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        begin = time.perf_counter()
        result = function(*args, **options)
        if not hasattr(result, "send"):
            spent[part] += time.perf_counter() - begin
            return result
        return _timed_stream(result, part, spent)  # a generator computes its gradients when they are read

    return call


def _timed_stream(stream: Any, part: str, spent: dict[str, float]) -> Any:
    while True:
        begin = time.perf_counter()
        try:
            one = next(stream)
        except StopIteration as end:
            return end.value
        finally:
            spent[part] += time.perf_counter() - begin
        yield one


def profile(size: str, spent: dict[str, float]) -> dict[str, float]:
    """Seconds of each part of a step with one half of the batch: medians over many steps."""
    model, batches = model_and_batches(size)
    halves = [tuple(array[: len(array) // 2] for array in batch) for batch in batches]
    found: dict[str, list[float]] = defaultdict(list)
    with Workers(1) as workers, single_threaded_blas():
        optimizer = AdamW(model.parameters(), 1e-3, weight_decay=0.1, workers=workers)
        for i in range(STEPS[size] + 2):
            spent.clear()
            begin = time.perf_counter()
            _, gradients = loss_and_gradients(model, halves[i % 4], 1, workers, [None])
            middle = time.perf_counter()
            optimizer.step(gradients)
            end = time.perf_counter()
            if i < 2:  # the first steps also allocate memory
                continue
            for part in PARTS:
                found[part].append(spent[part])
            found[ADAM].append(end - middle)
            found[REST].append(middle - begin - sum(spent.values()))
            found[ALL].append(end - begin)
    return {part: statistics.median(times) for part, times in found.items()}


def main() -> None:
    keep_freed_memory()
    spent: dict[str, float] = defaultdict(float)
    add_timers(spent)
    found = json.dumps({size: profile(size, spent) for size in SIZES}, indent=1)
    with atomic_write(FOUND) as temporary:
        temporary.write_text(found + "\n", encoding="utf-8")
    print(found)


if __name__ == "__main__":
    main()
