"""The gain from a long context: two models of the same size, one trained on short texts and one on long texts, read
the held-out text.

    python -m numpy_attention train --positions alibi --steps 400 --context 256 --batch 32 --out runs/short
    python -m numpy_attention train --positions alibi --steps 400 --context 2048 --batch 4 --out runs/long
    python -m tests.benchmarks.loss_by_position runs/short runs/long
    python -m tests.benchmarks.performance_page

Both models are trained on the same number of characters. The held-out text is cut into blocks as long as the long
context; a character's position is its position in the block. The short model reads each block in pieces, so the long
context must be a multiple of the short context. The long model reads each block twice: in the same pieces, and then
whole. These two readings differ only in the earlier text that the model sees. The standard error of their difference
is computed over the blocks.
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
from numpy_attention.training.data import consecutive_blocks
from numpy_attention.training.parallel import all_cores
from numpy_attention.training.restore import load_run, text_model
from numpy_attention.training.tasks.text import TextTask

FOUND = Path(__file__).with_suffix(".json")
EDGES = (0, 256, 512, 1024)


def negative_log_likelihoods(model: GPT, ids: np.ndarray, targets: np.ndarray, length: int) -> np.ndarray:
    """-log p of every target in nats; the model reads the ids (1, T) in pieces of `length`.

    Raises: ValueError if T is not a multiple of `length`.
    """
    logits, _ = model.forward(ids.reshape(-1, length))  # (pieces, length, V)
    rows = logits.reshape(targets.size, -1).astype(np.float64)
    return negative_log_likelihood_rows(rows, targets.reshape(-1, 1), 0.0)[0][:, 0]


def measure(short_run: Path, long_run: Path) -> dict[str, Any]:
    """The mean losses of the three readings by position, and the gain of the long model from the earlier text."""
    (short_config, *short_saved), (config, *saved) = load_run(short_run), load_run(long_run)
    short, long = text_model(*short_saved)[0], text_model(*saved)[0]
    few, many = short_config.context, config.context
    held_out = TextTask(config).held_out_ids
    blocks = list(consecutive_blocks(held_out[: (len(held_out) - 1) // many * many + 1], many, 1))
    readings = ((short, few), (long, few), (long, many))
    with all_cores():
        losses = np.array(
            [[negative_log_likelihoods(model, *block, length) for block in blocks] for model, length in readings]
        )  # (3, blocks, many)
    rows = []
    for first, end in pairwise((*EDGES, many)):
        mean_of_blocks = losses[:, :, first:end].mean(axis=-1)  # (3, blocks)
        worth = mean_of_blocks[1] - mean_of_blocks[2]
        error = worth.std(ddof=1) / np.sqrt(len(worth))
        rows.append({"first": first, "end": end, "losses": mean_of_blocks.mean(axis=1).tolist(),
                     "worth": worth.mean(), "error": error})  # fmt: skip
    return {"contexts": [few, many], "blocks": len(blocks), "losses": losses.mean(axis=(1, 2)).tolist(), "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description="the loss by position of a model with a short and a long context")
    parser.add_argument("short", type=Path, help="a run of train --task text")
    parser.add_argument("long", type=Path, help="another run, with a longer context")
    arguments = parser.parse_args()
    found = measure(arguments.short, arguments.long)
    with atomic_write(FOUND) as temporary:
        temporary.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
