"""Load a run from its directory, for sampling or to resume it.

Before we build a model of the stated size, we compare this size with the number of parameters in the file. So a wrong
description gives one line of error and takes no memory.
"""

from pathlib import Path
from typing import Any

import numpy as np

from numpy_attention.errors import InputError
from numpy_attention.files import config_from, read_into, reading
from numpy_attention.models.gpt import GPT
from numpy_attention.models.gpt_config import GPTConfig
from numpy_attention.training import checkpoint
from numpy_attention.training.byte_pairs import vocabulary_from
from numpy_attention.training.config import TrainConfig
from numpy_attention.training.data import Vocabulary

REFUSED = (TypeError, ValueError, LookupError, MemoryError)  # raised for an impossible description
WRONG_MODEL = "the checkpoint's description of its model is wrong"
PROGRESS = {"step": int, "seconds": float, "best_step": int, "since_best": int, "skipped": int}  # and `best`, or None


def load_run(directory: Path) -> tuple[TrainConfig, dict[str, np.ndarray], dict[str, Any]]:
    """The configuration, the arrays and the description in a directory's checkpoint.

    Raises: InputError for a damaged checkpoint, and for a file that is not a run's checkpoint.
    """
    path = checkpoint_path(directory)
    arrays, meta = checkpoint.load_arrays(path)
    for key, kind in {"config": dict, "model": dict, "task": dict, **PROGRESS}.items():
        if not isinstance(meta.get(key), kind):
            raise InputError(f"{path} cannot be loaded: its description has no {key!r}")
    config = TrainConfig.from_mapping(meta["config"], str(path))
    if config.from_ is None:  # otherwise the file of the pretrained model determines the sizes
        least = config.layers * config.d_model * max(config.d_model, config.d_ff)
        least += config.context * config.d_model if config.positions == "learned" else 0
        if least > numbers_in(arrays):
            raise InputError(f"{path} cannot be loaded: its sizes do not fit its arrays")
    return config, arrays, meta


def checkpoint_path(directory: Path) -> Path:
    """The path of a run's checkpoint; `directory` may also be the checkpoint file.

    Raises: InputError if there is none.
    """
    with reading(directory):  # the system may refuse a name, for example, a long one
        if not directory.exists():
            raise InputError(f"there is no directory {directory}")
    if not directory.is_dir():
        return directory
    if not (directory / checkpoint.NAME).exists():
        raise InputError(f"{directory} holds no {checkpoint.NAME}; give a directory that `train` has written")
    return directory / checkpoint.NAME


def text_model(arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> tuple[GPT, Vocabulary]:
    """The trained GPT of a checkpoint and its vocabulary.

    Raises: InputError if the description does not fit the arrays.
    """
    try:
        vocabulary = vocabulary_from(meta["task"])
    except REFUSED as error:
        raise InputError(f"{WRONG_MODEL}: {error}") from None
    model = gpt_model(arrays, meta)
    if model.config.vocab_size != len(vocabulary):
        raise InputError(f"{WRONG_MODEL}: its sizes do not fit its arrays")
    return model, vocabulary


def gpt_model(arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> GPT:
    """The trained GPT of a checkpoint; parameters stored in float16 become float32.

    Raises: InputError if the description does not fit the arrays.
    """
    try:
        config = config_from(GPTConfig, meta["model"])
        of_a_block = config.hidden_width() + config.num_heads * config.head_width()  # columns of w_1 and w_q
        least = config.d_model * (config.num_layers * of_a_block + config.vocab_size)
        if least > numbers_in(arrays):
            raise ValueError("its sizes do not fit its arrays")
        model = GPT(config, None)
    except REFUSED as error:
        raise InputError(f"{WRONG_MODEL}: {error}") from None
    wide = {name: array.astype(np.float32) if array.dtype == np.float16 else array for name, array in arrays.items()}
    read_into(model.parameters(), wide, "parameters.", "model")
    return model


def numbers_in(arrays: dict[str, np.ndarray]) -> int:
    """The number of numbers in the arrays of a file."""
    return sum(array.size for array in arrays.values())
