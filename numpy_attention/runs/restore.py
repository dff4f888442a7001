"""From a run's directory back to its model: for sampling, and for going on with the run."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from numpy_attention.errors import InputError
from numpy_attention.files import config_from
from numpy_attention.models.gpt import GPT
from numpy_attention.models.gpt_config import GPTConfig
from numpy_attention.runs import checkpoint
from numpy_attention.runs.config import TrainConfig
from numpy_attention.training.byte_pairs import vocabulary_from
from numpy_attention.training.data import Vocabulary

MAX_TABLE = 2**24  # numbers in a table of positions, which is made for the context and not in the file


def load_run(directory: Path) -> tuple[TrainConfig, dict[str, np.ndarray], dict[str, Any]]:
    """The configuration, the arrays and the description in a directory's checkpoint."""
    path = checkpoint_path(directory)
    arrays, meta = checkpoint.load_arrays(path)
    for key, kind in (("config", dict), ("model", dict), ("task", dict), ("step", int)):
        if not isinstance(meta.get(key), kind):
            raise InputError(f"{path} cannot be loaded: its description has no {key!r}")
    config = TrainConfig.from_mapping(meta["config"], str(path))
    # a run is built before its arrays are compared: nothing must be built that the file cannot fill
    claimed = config.layers * config.d_model * max(config.d_model, config.d_ff)
    claimed += config.context * config.d_model if config.positions == "learned" else 0
    if claimed > sum(array.size for array in arrays.values()) or config.context * config.d_model > MAX_TABLE:
        raise InputError(f"{path} cannot be loaded: its sizes are not those of its arrays")
    return config, arrays, meta


def checkpoint_path(directory: Path) -> Path:
    """Where the checkpoint of a run lies; a checkpoint file may be named itself."""
    if directory.is_file():
        return directory
    if not directory.exists():
        raise InputError(f"there is no directory {directory}")
    if not (directory / checkpoint.NAME).exists():
        raise InputError(f"{directory} holds no {checkpoint.NAME}; name a directory that `train` has written")
    return directory / checkpoint.NAME


def text_model(arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> tuple[GPT, Vocabulary]:
    """The trained GPT of a checkpoint and its vocabulary."""
    try:
        config = config_from(GPTConfig, meta["model"])
        vocabulary = vocabulary_from(meta["task"])
        # before anything of the claimed size is made: its blocks must be no more numbers than the file holds
        claimed = config.num_layers * config.d_model * config.hidden_width() + config.vocab_size * config.d_model
        if claimed > sum(math.prod(array.shape) for array in arrays.values()) or config.vocab_size != len(vocabulary):
            raise ValueError("its sizes are not those of its arrays")
        if config.context_length * config.d_model > MAX_TABLE:
            raise ValueError(f"a context of {config.context_length} is too long")
        model = GPT(config, None)
    except (TypeError, ValueError, KeyError, OverflowError, MemoryError) as error:
        raise InputError(f"the checkpoint's description of its model does not hold: {error}") from None
    checkpoint.read_into(model.parameters(), arrays, "parameters.", "model")
    return model, vocabulary
