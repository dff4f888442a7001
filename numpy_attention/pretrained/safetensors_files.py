"""Part V. Models in the safetensors format, for other programs

A safetensors file is a length, a JSON header that says of every array its name, dtype, shape and place, and then the
numbers, one array after the other. It holds no code, many programs read it, and the package `safetensors` reads and
writes it (extra `pretrained`). Our own `.npz` files, `model.save`, hold checksums as well.

    na.export_safetensors(model, "model.safetensors")
    model = na.import_safetensors("model.safetensors")          # the class and sizes that the file tells
    na.import_safetensors("foreign.safetensors", into=model)    # a file that tells none, with the names of this model
"""

import dataclasses
import json
from os import PathLike
from typing import Any

import numpy as np

from numpy_attention.backend import to_host
from numpy_attention.errors import InputError
from numpy_attention.files import MAX_SAID, config_from, read_into, whole_or_not_at_all
from numpy_attention.models.gpt import GPT
from numpy_attention.models.model import Model
from numpy_attention.models.seq2seq import Seq2Seq
from numpy_attention.models.sequence_classifier import SequenceClassifier

CLASSES: dict[str, type[Model]] = {kind.__name__: kind for kind in (GPT, Seq2Seq, SequenceClassifier)}
KEY = "numpy_attention"  # under which the header's metadata tells class and sizes


def export_safetensors(model: Model, path: str | PathLike[str]) -> None:
    """Write a model's parameters, under their own names, with its class and sizes in the header; whole or not at all.

    Raises: InputError without the package safetensors.
    """
    _, numpy_files = _package()
    arrays = {name: np.ascontiguousarray(to_host(p)) for name, p in model.parameters().items()}
    about = json.dumps({"class": type(model).__name__, "model": dataclasses.asdict(model.config)})
    with whole_or_not_at_all(path) as temporary:
        numpy_files.save_file(arrays, temporary, metadata={KEY: about})


def import_safetensors(path: str | PathLike[str], into: Model | None = None) -> Model:
    """The model in a safetensors file, in the file's dtype; or `into`, with the numbers of the file.

    Raises: InputError, in one line, without the package safetensors, for a damaged file, for one that does not tell
    its class and sizes when `into` is not given, and for one whose names, shapes or dtypes are not the model's.
    """
    package, numpy_files = _package()
    try:
        with package.safe_open(path, framework="numpy") as file:
            about = (file.metadata() or {}).get(KEY)
        arrays: dict[str, np.ndarray] = numpy_files.load_file(path)
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except (OSError, MemoryError, ValueError, TypeError, KeyError, package.SafetensorError) as error:
        said = f"{type(error).__name__}: {error}"[:MAX_SAID]  # a KeyError: a dtype that NumPy does not have
        raise InputError(f"{path} is damaged, or no safetensors file that NumPy can hold ({said})") from None
    model = into or _built(path, about, arrays)
    try:
        read_into(model.parameters(), arrays, "", "model")
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return model


def _built(path: str | PathLike[str], about: str | None, arrays: dict[str, np.ndarray]) -> Model:
    if about is None:
        raise InputError(f"{path} does not tell what model it holds; make one, and give it as `into`")
    try:
        told: dict[str, Any] = json.loads(about)
        kind = CLASSES[told["class"]]
        config = config_from(kind.config_class, told["model"])
        # The gammas alone are num_layers d_model numbers: nothing is built that the file cannot fill.
        if config.num_layers * config.d_model > sum(array.size for array in arrays.values()):
            raise ValueError("its sizes are not those of its arrays")
        return kind(config, None, next(iter(arrays.values())).dtype)
    except (TypeError, ValueError, KeyError, AttributeError, RecursionError, MemoryError) as error:
        said = str(error)[:MAX_SAID]
        raise InputError(f"{path} cannot be loaded: its description of a model does not hold: {said}") from None


def _package() -> tuple[Any, Any]:
    try:
        import safetensors
        import safetensors.numpy as numpy_files
    except ImportError:
        raise InputError("safetensors files need the package safetensors: pip install safetensors") from None
    return safetensors, numpy_files
