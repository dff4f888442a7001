"""Load a run from its directory, for sampling or to resume it.

A checkpoint may come from anywhere. Before we build a model of the stated size, we compare this size with the number of
parameters in the file, so a small file cannot make a large model.
"""

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.errors import InputError
from numpy_attention.files import config_from, read_into
from numpy_attention.models.gpt import GPT
from numpy_attention.models.gpt_config import GPTConfig
from numpy_attention.training import checkpoint
from numpy_attention.training.byte_pairs import vocabulary_from
from numpy_attention.training.config import MAX_TABLE, TrainConfig
from numpy_attention.training.data import Vocabulary

REFUSED = (TypeError, ValueError, KeyError, OverflowError, MemoryError)  # raised for an impossible description
WRONG_MODEL = "the checkpoint's description of its model is wrong"
COUNTS = ("step", "best_step", "since_best", "skipped")


def load_run(directory: Path) -> tuple[TrainConfig, dict[str, np.ndarray], dict[str, Any]]:
    """The configuration, the arrays and the description in a directory's checkpoint."""
    path = checkpoint_path(directory)
    arrays, meta = checkpoint.load_arrays(path)
    for key, kind in (("config", dict), ("model", dict), ("task", dict), ("step", int)):
        if not isinstance(meta.get(key), kind):
            raise InputError(f"{path} cannot be loaded: its description has no {key!r}")
    config = TrainConfig.from_mapping(meta["config"], str(path))
    if config.from_ is None:  # otherwise the file of the pretrained model determines the sizes
        least = config.layers * config.d_model * max(config.d_model, config.d_ff)
        least += config.context * config.d_model if config.positions == "learned" else 0
        try:
            _check_size(least, config.context, config.d_model, arrays)
        except ValueError as error:
            raise InputError(f"{path} cannot be loaded: {error}") from None
    return config, arrays, meta


class HowFar(NamedTuple):
    """The progress of a run."""

    step: int
    seconds: float
    best: float  # infinity before the first evaluation
    best_step: int
    since_best: int
    skipped: int


def how_far(meta: dict[str, Any], steps: int) -> HowFar:
    """The progress in a checkpoint's description.

    Raises: InputError for progress that is impossible in a run of `steps` steps.
    """
    try:
        step, best_step, since_best, skipped = counts = [int(meta[name]) for name in COUNTS]
        best = math.inf if meta["best"] is None else float(meta["best"])
        seconds = float(meta["seconds"])
        if min(counts) < 0 or step > steps:
            raise ValueError(f"step {step} of {steps}")
        if not 0 <= seconds < math.inf or math.isnan(best):
            raise ValueError(f"{seconds} seconds, best {best}")
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"the checkpoint holds no valid progress of the run: {error}") from None
    return HowFar(step, seconds, best, best_step, since_best, skipped)


def check_optimizer(arrays: dict[str, np.ndarray], progress: HowFar) -> None:
    """Refuse a checkpoint whose optimizer does not fit the progress of the run.

    Raises: InputError for another number of steps or a negative mean of squares.
    """
    steps = int(arrays["optimizer.steps"])
    if steps != progress.step - progress.skipped:
        run = f"but the run has taken {progress.step}, of which {progress.skipped} were skipped"
        raise InputError(f"the checkpoint cannot be used: its optimizer has taken {steps} steps, {run}")
    for name, array in arrays.items():
        if name.startswith("optimizer.v.") and (least := array.min(initial=0)) < 0:
            raise InputError(f"the checkpoint cannot be used: {name}, a mean of squares, holds {least}")


def checkpoint_path(directory: Path) -> Path:
    """The path of a run's checkpoint; `directory` may also be the checkpoint file."""
    if not directory.exists():
        raise InputError(f"there is no directory {directory}")
    if not directory.is_dir():
        return directory
    if not (directory / checkpoint.NAME).exists():
        raise InputError(f"{directory} holds no {checkpoint.NAME}; give a directory that `train` has written")
    return directory / checkpoint.NAME


def text_model(arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> tuple[GPT, Vocabulary]:
    """The trained GPT of a checkpoint and its vocabulary."""
    try:
        vocabulary = vocabulary_from(meta["task"])
    except REFUSED as error:
        raise InputError(f"{WRONG_MODEL}: {error}") from None
    model = gpt_model(arrays, meta)
    if model.config.vocab_size != len(vocabulary):
        raise InputError(f"{WRONG_MODEL}: its sizes do not fit its arrays")
    return model, vocabulary


def gpt_model(arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> GPT:
    """The trained GPT of a checkpoint; parameters stored in float16 become float32."""
    try:
        config = config_from(GPTConfig, meta["model"])
        of_a_block = config.hidden_width() + config.num_heads * config.head_width()  # columns of w_1 and w_q
        least = config.d_model * (config.num_layers * of_a_block + config.vocab_size)
        _check_size(least, config.context_length, config.d_model, arrays)
        model = GPT(config, None)
    except REFUSED as error:
        raise InputError(f"{WRONG_MODEL}: {error}") from None
    wide = {name: array.astype(np.float32) if array.dtype == np.float16 else array for name, array in arrays.items()}
    read_into(model.parameters(), wide, "parameters.", "model")
    return model


def _check_size(least: int, context: int, d_model: int, arrays: dict[str, np.ndarray]) -> None:
    """Check sizes before a model is built: the file must hold at least `least` numbers, the context has a bound."""
    if least > sum(array.size for array in arrays.values()):
        raise ValueError("its sizes do not fit its arrays")
    if context * d_model > MAX_TABLE:
        raise ValueError(f"a context of {context} is too long")
