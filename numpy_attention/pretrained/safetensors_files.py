"""Part V. Models in the safetensors format, for other programs

A safetensors file is a length, then a JSON header with the name, dtype, shape and offset of every array, then the
numbers, one array after the other. The file holds no code, and many programs can read it. The package `safetensors`
reads and writes it (extra `pretrained`). Our own `.npz` files (`model.save`) also hold checksums.

    na.export_safetensors(model, "model.safetensors")
    model = na.import_safetensors("model.safetensors")          # class and sizes come from the file
    na.import_safetensors("foreign.safetensors", into=model)    # a file without class and sizes, for this model

For a model with low-rank changes (Chapter 37) the file holds only the changes, a few megabytes, with rank and alpha
in its header. They can be loaded only into the model that they were learned on; the header holds this model's checksum:

    na.export_safetensors(tuned, "adapter.safetensors")
    model, tokenizer = na.load_pretrained("smollm2.gguf")
    na.import_safetensors("adapter.safetensors", into=model)
"""

import dataclasses
import hashlib
import json
from os import PathLike
from typing import Any

import numpy as np

from numpy_attention.backend import to_host
from numpy_attention.beyond.c54_experts_gpt import ExpertsGPT
from numpy_attention.errors import InputError
from numpy_attention.files import atomic_write, config_from, read_into
from numpy_attention.layers.c13_layer import Parameters
from numpy_attention.models.c21c_model import Model, require_finite_parameters
from numpy_attention.models.c22_sequence_classifier import SequenceClassifier
from numpy_attention.models.c22a_text_encoder import TextEncoder
from numpy_attention.models.c23_gpt import GPT
from numpy_attention.models.c24_seq2seq import Seq2Seq
from numpy_attention.pretrained.c33_gguf_files import Arrays, package, refused
from numpy_attention.pretrained.c33a_folders import read_safetensors
from numpy_attention.pretrained.c37_low_rank import LowRank, add_low_rank, low_rank_of, matrices
from numpy_attention.recent.c49_recent_gpt import RecentGPT

MODELS = (GPT, RecentGPT, ExpertsGPT, Seq2Seq, SequenceClassifier, TextEncoder)
CLASSES: dict[str, type[Model]] = {kind.__name__: kind for kind in MODELS}
DTYPES = {"F32": np.dtype(np.float32), "F64": np.dtype(np.float64)}
KEY = "numpy_attention"  # key of class and sizes in the header's metadata


def export_safetensors(model: Model, path: str | PathLike[str]) -> None:
    """Write a model's parameters by name, with its class and sizes in the header, in one atomic write.

    For a model with low-rank changes only the changes are written.

    Raises: InputError without the package safetensors; ValueError for frozen arrays (they would be left out), for a
    model with low-rank changes in which other parameters also learn, and for NaN or infinity; InputError or OSError
    for a file that cannot be written.
    """
    numpy_files = package("safetensors.numpy", "safetensors files")
    arrays = model.parameters()
    about: dict[str, Any] = {"class": type(model).__name__, "model": dataclasses.asdict(model.config)}
    if isinstance(model, (GPT, TextEncoder)) and (changes := low_rank_of(model)) is not None:
        about["low_rank"] = {"rank": changes[0], "alpha": changes[1]}
        about["learned_on"] = _checksum(model)
        arrays = _changes(model)
    elif left_out := len(model.frozen_arrays()):
        raise ValueError(f"export_safetensors: {left_out} arrays are frozen and would be left out; call unfreeze first")
    require_finite_parameters("export_safetensors", arrays)
    arrays = {name: np.ascontiguousarray(to_host(p)) for name, p in arrays.items()}
    with atomic_write(path) as temporary, refused(f"cannot write to {path}"):  # a full disk, for example
        numpy_files.save_file(arrays, temporary, metadata={KEY: json.dumps(about)})


def import_safetensors(path: str | PathLike[str], into: Model | None = None) -> Model:
    """The model in a safetensors file, in the file's dtype; or the model `into`, with the parameters of the file.

    Low-rank changes are added to `into`; everything else in this model is frozen.

    Raises: InputError without the package safetensors, for a damaged file, and for a file whose names,
    shapes or dtypes do not fit the model. Without `into` also for a file without class and sizes, and for a file that
    holds only low-rank changes.
    """
    texts, arrays = read_safetensors(path)
    arrays = {name: array._replace(dtype=DTYPES.get(array.dtype, array.dtype)) for name, array in arrays.items()}
    with refused(f"{path} is damaged"):
        about = dict(json.loads(texts.get(KEY, "{}")))
    try:
        if into is None:
            into = _built(about, arrays)
        elif "low_rank" in about:
            _add_changes(about, into)
        read_into(into.parameters(), arrays, "", "model")
    except InputError as error:
        raise InputError(f"{path} cannot be loaded: {error}") from None
    except (TypeError, ValueError, KeyError, AttributeError, MemoryError) as error:
        raise InputError(f"{path} cannot be loaded: its description of the model is wrong: {error}") from None
    return into


def _changes(model: GPT | TextEncoder) -> Parameters:
    """The low-rank changes, frozen or not. No other parameter may learn."""
    changes = {f"{name}.{side}": getattr(w, side) for name, _, _, w in matrices(model) for side in ("a", "b")}
    if more := sorted(model.parameters().keys() - changes.keys()):
        raise ValueError(f"export_safetensors: {more[0]} also learns and would be left out; call merge_low_rank first")
    return changes


def _checksum(model: GPT | TextEncoder) -> str:
    """The SHA-256 of the matrices that low-rank changes are learned on."""
    digest = hashlib.sha256()
    for *_, w in matrices(model):
        digest.update(np.ascontiguousarray(to_host(w.w if isinstance(w, LowRank) else w)).data)
    return digest.hexdigest()


def _add_changes(about: dict[str, Any], model: Model) -> None:
    """Add empty changes to the model that they were learned on; the caller fills them."""
    if not isinstance(model, (GPT, TextEncoder)) or low_rank_of(model) is not None:
        fix = "give a GPT or TextEncoder without such changes as `into` (merge_low_rank adds them to the matrices)"
        raise InputError(f"it holds low-rank changes; {fix}")
    if about.get("learned_on") != _checksum(model):
        fix = "load the model that they were learned on"
        raise InputError(f"its low-rank changes belong to a model with other parameters; {fix}")
    add_low_rank(model, about["low_rank"]["rank"], about["low_rank"]["alpha"])


def _built(about: dict[str, Any], arrays: Arrays) -> Model:
    if not about:
        raise InputError("it has no description of its model; make a model, and give it as `into`")
    if "low_rank" in about:
        raise InputError("it holds only low-rank changes; load the model they belong to, and give it as `into`")
    kind = CLASSES[about["class"]]
    config = config_from(kind.config_class, about["model"])
    # the gammas alone have num_layers * d_model numbers, and routers this many for each expert: a model that the file
    # cannot fill is not built
    parts = config.num_layers * getattr(config, "num_experts", 1)
    if parts * config.d_model > sum(array.size for array in arrays.values()):
        raise ValueError("its sizes do not fit its arrays")
    return kind(config, None, next(iter(arrays.values())).dtype)
