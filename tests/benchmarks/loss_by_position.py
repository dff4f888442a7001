"""What a long context buys: two models of the same size, one trained on short texts and one on long ones, read what
neither has seen.

    python -m numpy_attention train --positions alibi --steps 400 --context 256 --batch 32 --out runs/short
    python -m numpy_attention train --positions alibi --steps 400 --context 2048 --batch 4 --out runs/long
    python -m tests.benchmarks.loss_by_position runs/short runs/long
    python -m tests.benchmarks.performance_page

Both have then read the same number of characters. The held-out text is cut into blocks as long as the long context; a
character's place is its place in the block. The short model reads each block in pieces, so the long context must be a
multiple of the short one. The long model does so too, and then reads it whole: the last two differ in nothing but what
was seen before. The standard error of their difference is over blocks.
"""

import argparse
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from numpy_attention.files import atomic_write
from numpy_attention.models.gpt import GPT
from numpy_attention.ops.losses import negative_log_likelihood_rows
from numpy_attention.runs.parallel import all_cores
from numpy_attention.runs.restore import load_run, text_model
from numpy_attention.tasks.text import TextTask
from numpy_attention.training.data import consecutive_blocks

FOUND = Path(__file__).with_suffix(".json")
EDGES = (0, 256, 512, 1024)


def surprises(model: GPT, ids: np.ndarray, targets: np.ndarray, length: int) -> np.ndarray:
    """-log p of every target, the ids (1, T) read in pieces of that length; in nats.

    Raises: ValueError where no whole number of pieces makes T.
    """
    logits, _ = model.forward(ids.reshape(-1, length))  # (pieces, length, V)
    rows = logits.reshape(targets.size, -1).astype(np.float64)
    return negative_log_likelihood_rows(rows, targets.reshape(-1, 1), 0.0)[0][:, 0]


def measure(short_run: Path, long_run: Path) -> dict[str, Any]:
    """The mean losses of three readers by a character's place, and what the context is worth to the last."""
    (short_config, *short_saved), (config, *saved) = load_run(short_run), load_run(long_run)
    short, long = text_model(*short_saved)[0], text_model(*saved)[0]
    few, many = short_config.context, config.context
    held_out = TextTask(config).held_out_ids
    blocks = list(consecutive_blocks(held_out[: (len(held_out) - 1) // many * many + 1], many, 1))
    readers = ((short, few), (long, few), (long, many))
    with all_cores():
        losses = np.array(
            [[surprises(model, *block, length) for block in blocks] for model, length in readers]
        )  # (3, blocks, many)
    rows = []
    for first, end in pairwise((*EDGES, many)):
        of_each = losses[:, :, first:end].mean(axis=-1)  # (3, blocks)
        worth = of_each[1] - of_each[2]
        error = worth.std(ddof=1) / np.sqrt(len(worth))
        rows.append({"first": first, "end": end, "losses": of_each.mean(axis=1).tolist(), "worth": worth.mean(),
                     "error": error})  # fmt: skip
    return {"contexts": [few, many], "blocks": len(blocks), "losses": losses.mean(axis=(1, 2)).tolist(), "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description="the loss by position of a model with a short and a long context")
    parser.add_argument("short", type=Path, help="a run of train --task text")
    parser.add_argument("long", type=Path, help="another, with a longer context")
    arguments = parser.parse_args()
    found = measure(arguments.short, arguments.long)
    with atomic_write(FOUND) as temporary:
        temporary.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
