"""Load a run from its directory, for sampling or to resume it."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from numpy_attention.errors import InputError
from numpy_attention.files import StoredArray, config_from, read_into, reading
from numpy_attention.models.c23_gpt import GPT
from numpy_attention.recent.c49_recent_gpt import RecentGPT
from numpy_attention.training.c27_data import Vocabulary
from numpy_attention.training.c27a_byte_pairs import vocabulary_from
from numpy_attention.training.c29_checkpoint import NAME, load_arrays
from numpy_attention.training.config import TrainConfig

PROGRESS = {"step": int, "seconds": float, "best_step": int, "skipped": int}  # and `best`, or None


def load_run(directory: Path) -> tuple[TrainConfig, dict[str, StoredArray], dict[str, Any]]:
    """The configuration, the arrays and the description in a directory's checkpoint.

    Raises: InputError for a damaged checkpoint, and for a file that is not a run's checkpoint.
    """
    path = checkpoint_path(directory)
    arrays, meta = load_arrays(path)
    for key, kind in {"config": dict, "model": dict, "task": dict, **PROGRESS}.items():
        if not isinstance(meta.get(key), kind):
            raise InputError(f"{path} cannot be loaded: its description has no {key!r}")
    config = TrainConfig.from_mapping(meta["config"], str(path))
    if config.from_ is None:  # otherwise the file of the pretrained model determines the sizes
        _check_size(arrays, config.layers, config.d_model, max(config.d_model, config.d_ff))
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
    if not (directory / NAME).exists():
        raise InputError(f"{directory} holds no {NAME}; give a directory that `train` has written")
    return directory / NAME


def text_model(arrays: dict[str, StoredArray], meta: dict[str, Any]) -> tuple[GPT, Vocabulary]:
    """The trained GPT of a checkpoint and its vocabulary.

    Raises: InputError if the description does not fit the arrays.
    """
    return gpt_model(arrays, meta), vocabulary_from(meta["task"])


def gpt_model(arrays: dict[str, StoredArray], meta: dict[str, Any]) -> GPT:
    """The trained GPT of a checkpoint; parameters stored in float16 become float32.

    Raises: InputError if the description does not fit the arrays.
    """
    try:
        kinds: list[type[GPT]] = [GPT, RecentGPT, *RecentGPT.__subclasses__()]  # the first that has all these fields
        fields = {kind: {field.name for field in dataclasses.fields(kind.config_class)} for kind in kinds}
        kind = next((kind for kind in kinds if meta["model"].keys() <= fields[kind]), RecentGPT)
        config = config_from(kind.config_class, meta["model"])
        _check_size(arrays, config.num_layers, config.d_model, config.hidden_width())
        model = kind(config, None)
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise InputError(f"the checkpoint's description of its model is wrong: {error}") from None
    wide = {name: _in_float32(array) if array.dtype == np.float16 else array for name, array in arrays.items()}
    read_into(model.parameters(), wide, "parameters.", "model")
    return model


def _in_float32(array: StoredArray) -> StoredArray:
    return StoredArray(array.shape, np.dtype(np.float32), lambda: array.read().astype(np.float32))


def _check_size(arrays: dict[str, StoredArray], layers: int, d_model: int, width: int) -> None:
    """Refuse a description of far more parameters than the file holds, before memory is taken for them."""
    if layers * d_model * width > sum(array.size for array in arrays.values()):
        raise InputError("the sizes of the checkpoint do not fit its arrays")
