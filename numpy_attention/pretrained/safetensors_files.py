"""Part V. Models in the safetensors format, for other programs

A safetensors file is a length, a JSON header that says of every array its name, dtype, shape and place, and then the
numbers, one array after the other. It holds no code, many programs read it, and the package `safetensors` reads and
writes it (extra `pretrained`). Our own `.npz` files, `model.save`, hold checksums as well.

    na.export_safetensors(model, "model.safetensors")
    model = na.import_safetensors("model.safetensors")          # the class and sizes that the file tells
    na.import_safetensors("foreign.safetensors", into=model)    # a file that tells none, with the names of this model

Of a model with changes of low rank (Chapter 37) the file holds the changes alone, a few megabytes, with rank and alpha
in its header. They are read into the model that they were learned on, which the header knows by a checksum:

    na.export_safetensors(tuned, "adapter.safetensors")
    model, tokenizer = na.load_pretrained("smollm2.gguf")
    na.import_safetensors("adapter.safetensors", into=model)
"""

import dataclasses
import hashlib
import json
import math
from os import PathLike
from typing import Any

import numpy as np

from numpy_attention.backend import to_host
from numpy_attention.errors import MAX_SAID, InputError, mismatches, several
from numpy_attention.files import config_from, open_regular, read_into, whole_or_not_at_all
from numpy_attention.layers.layer import Parameters
from numpy_attention.models.gpt import GPT
from numpy_attention.models.model import Model, require_finite_parameters
from numpy_attention.models.seq2seq import Seq2Seq
from numpy_attention.models.sequence_classifier import SequenceClassifier
from numpy_attention.models.text_encoder import TextEncoder
from numpy_attention.pretrained.gguf_files import package
from numpy_attention.pretrained.low_rank import LowRank, add_low_rank, low_rank_of, matrices

CLASSES: dict[str, type[Model]] = {kind.__name__: kind for kind in (GPT, Seq2Seq, SequenceClassifier, TextEncoder)}
KEY = "numpy_attention"  # under which the header's metadata tells class and sizes


def export_safetensors(model: Model, path: str | PathLike[str]) -> None:
    """Write a model's parameters, under their own names, with its class and sizes in the header; whole or not at all.

    Of a model with changes of low rank these are the changes alone.

    Raises: InputError without the package safetensors; ValueError for a model of which something is frozen, and would
    be left out, in which more than the changes of low rank learns, or that holds a NaN or an infinity; OSError for a
    file that cannot be written.
    """
    safetensors = package("safetensors", "safetensors files")
    numpy_files = package("safetensors.numpy", "safetensors files")
    arrays = model.parameters()
    about: dict[str, Any] = {"class": type(model).__name__, "model": dataclasses.asdict(model.config)}
    if isinstance(model, (GPT, TextEncoder)) and (changes := low_rank_of(model)) is not None:
        about["low_rank"] = {"rank": changes[0], "alpha": changes[1]}
        about["learned_on"] = _checksum(model)
        arrays = _changes(model)
    elif left_out := len(model.frozen_arrays()):
        said = f"{left_out} arrays are frozen and would be left out; call unfreeze first"
        raise ValueError(f"export_safetensors: {said}")
    require_finite_parameters("export_safetensors", arrays)
    arrays = {name: np.ascontiguousarray(to_host(p)) for name, p in arrays.items()}
    with whole_or_not_at_all(path) as temporary:
        try:
            numpy_files.save_file(arrays, temporary, metadata={KEY: json.dumps(about)})
        except safetensors.SafetensorError as error:  # a full disk, for example
            raise OSError(str(error)) from None


def import_safetensors(path: str | PathLike[str], into: Model | None = None) -> Model:
    """The model in a safetensors file, in the file's dtype; or `into`, with the numbers of the file.

    Changes of low rank are added to `into`, which is frozen but for them.

    Raises: InputError, in one line, without the package safetensors, for a damaged file, for one that does not tell
    its class and sizes, or holds changes alone, when `into` is not given, and for one whose names, shapes or dtypes are
    not the model's.
    """
    safetensors = package("safetensors", "safetensors files")
    numpy_files = package("safetensors.numpy", "safetensors files")
    try:
        open_regular(path).close()
        with safetensors.safe_open(path, framework="numpy") as file:
            about = (file.metadata() or {}).get(KEY)
        arrays: dict[str, np.ndarray] = numpy_files.load_file(path)
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except (OSError, MemoryError, ValueError, TypeError, KeyError, safetensors.SafetensorError) as error:
        said = f"{type(error).__name__}: {error}"[:MAX_SAID]  # a KeyError: a dtype that NumPy does not have
        raise InputError(f"{path} is damaged, or no safetensors file that NumPy can hold ({said})") from None
    told = _description(path, about)
    model = into or _built(path, told, arrays)
    if into is not None and told is not None and "low_rank" in told:
        _add_changes(path, told, arrays, into)
    try:
        read_into(model.parameters(), arrays, "", "model")
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return model


def _changes(model: GPT | TextEncoder) -> Parameters:
    """The changes of low rank, whether they learn just now or are frozen; nothing else may learn beside them."""
    layers = {name: w for name, _, _, w in matrices(model) if isinstance(w, LowRank)}
    changes = {f"{name}.{side}": getattr(w, side) for name, w in layers.items() for side in ("a", "b")}
    if more := sorted(model.parameters().keys() - changes.keys()):
        said = f"{more[0]} learns beside the changes of low rank, which are written alone; call merge_low_rank first"
        raise ValueError(f"export_safetensors: {said}")
    return changes


def _checksum(model: GPT | TextEncoder) -> str:
    """The SHA-256 of the matrices that changes of low rank are learned on."""
    digest = hashlib.sha256()
    for *_, w in matrices(model):
        digest.update(np.ascontiguousarray(to_host(w.w if isinstance(w, LowRank) else w)).data)
    return digest.hexdigest()


def _description(path: str | PathLike[str], about: str | None) -> dict[str, Any] | None:
    """What the header says of the model."""
    if about is None:
        return None
    try:
        told = json.loads(about)
    except (ValueError, RecursionError) as error:
        raise _no_description(path, error) from None
    if not isinstance(told, dict):
        raise _no_description(path, f"it is a {type(told).__name__}")
    return told


def _add_changes(
    path: str | PathLike[str], about: dict[str, Any], arrays: dict[str, np.ndarray], model: Model
) -> None:
    """Put changes of low rank into a model, to be filled, if the arrays are such changes, and of this model."""
    told = about["low_rank"]
    rank, alpha = (told.get(name) for name in ("rank", "alpha")) if isinstance(told, dict) else (None, None)
    if not isinstance(model, (GPT, TextEncoder)) or low_rank_of(model) is not None:
        fix = "give a GPT or TextEncoder without changes of its own (merge_low_rank adds them to it) as `into`"
        raise InputError(f"{path} holds changes of low rank; {fix}")
    widest = model.config.d_model  # what add_low_rank allows
    if not (type(rank) is int and type(alpha) is float and 0 < rank <= widest and 0 < alpha < math.inf):
        raise _no_description(path, f"its changes of low rank have no rank and alpha, the rank at most {widest}")
    # of the shape and dtype alone: nothing is built that the file cannot fill
    sides = {f"{name}.a": (w, (w.shape[0], rank)) for name, _, _, w in matrices(model)}
    sides |= {f"{name}.b": (w, (rank, w.shape[1])) for name, _, _, w in matrices(model)}
    expected = {name: np.broadcast_to(np.zeros((), w.dtype), shape) for name, (w, shape) in sides.items()}
    if wrong := mismatches(expected, arrays, "model"):
        raise InputError(f"{path}: its changes of low rank do not fit the model: {several(wrong)}")
    if "learned_on" in about and about["learned_on"] != _checksum(model):
        fix = "load the model that they were learned on"
        raise InputError(f"{path}: its changes of low rank belong to a model with other numbers; {fix}")
    add_low_rank(model, rank, alpha)


def _built(path: str | PathLike[str], told: dict[str, Any] | None, arrays: dict[str, np.ndarray]) -> Model:
    if told is None:
        raise InputError(f"{path} does not tell what model it holds; make one, and give it as `into`")
    if "low_rank" in told:
        fix = "load the model they belong to, and give it as `into`"
        raise InputError(f"{path} holds changes of low rank alone; {fix}")
    try:
        kind = CLASSES[told["class"]]
        config = config_from(kind.config_class, told["model"])
        # The gammas alone are num_layers d_model numbers: nothing is built that the file cannot fill.
        if config.num_layers * config.d_model > sum(array.size for array in arrays.values()):
            raise ValueError("its sizes are not those of its arrays")
        return kind(config, None, next(iter(arrays.values())).dtype)
    except (TypeError, ValueError, KeyError, AttributeError, MemoryError) as error:
        raise _no_description(path, error) from None


def _no_description(path: str | PathLike[str], why: object) -> InputError:
    return InputError(f"{path} cannot be loaded: its description of a model does not hold: {str(why)[:MAX_SAID]}")
