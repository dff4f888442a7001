"""Chapter 36. From a file to a model that speaks

    path --> settings --> GPTConfig --> GPT of zeros --> filled, tensor by tensor (Chapter 34)
         --> tokenizer (Chapter 35)

Nothing else happens: the model is the one of Chapter 23. What a file asks for that this book has not built, or a tensor
too many, too few or of another shape, is one error that lists what there is room for and counts the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.errors import InputError, dtype_error, short_repr
from numpy_attention.models.gpt import GPT
from numpy_attention.models.model import Model
from numpy_attention.models.text_encoder import TextEncoder
from numpy_attention.pretrained.folders import read_folder
from numpy_attention.pretrained.gguf_files import Arrays, read_gguf
from numpy_attention.pretrained.names import BERT, GPT2, LLAMA, fill, matched
from numpy_attention.pretrained.settings import (
    Settings,
    bert_folder,
    gpt2_folder,
    gpt2_gguf,
    llama_folder,
    llama_gguf,
)
from numpy_attention.pretrained.tokenizer import Tokenizer, tokenizer_of_folder, tokenizer_of_gguf


class Kind(NamedTuple):
    """A kind of model in a file: which class of this book it is, by which names, and of which sizes."""

    model: type[Model]
    names: Mapping[str, tuple[str, str]]
    config: Callable[[Settings, Collection[str]], Any]


GGUF = {"llama": Kind(GPT, LLAMA, llama_gguf), "gpt2": Kind(GPT, GPT2, gpt2_gguf)}
FOLDERS = {
    "llama": Kind(GPT, LLAMA, llama_folder), "qwen2": Kind(GPT, LLAMA, llama_folder),
    "gpt2": Kind(GPT, GPT2, gpt2_folder), "bert": Kind(TextEncoder, BERT, bert_folder),
}


class Pretrained(NamedTuple):
    """A model with the vocabulary that it was trained with."""

    model: Model
    tokenizer: Tokenizer


def load_pretrained(path: str | PathLike[str], dtype: Any = np.float32) -> Pretrained:
    """The model and the tokenizer in a `.gguf` file, or in a folder in Hugging Face's layout.

    Raises: InputError, in one line, for a file that is damaged, or holds what is not built here; TypeError for a dtype
    that is none of floats.
    """
    if np.dtype(dtype).kind != "f":
        raise dtype_error("load_pretrained", "dtype", "one of floats", np.dtype(dtype), "leave it out: float32")
    path = Path(path)
    gguf = not path.is_dir()
    values, arrays = read_gguf(path) if gguf else read_folder(path)
    name = values.get("general.architecture" if gguf else "model_type")
    known = GGUF if gguf else FOLDERS
    if not isinstance(name, str) or name not in known:
        raise InputError(f"{path} holds a model of the kind {short_repr(name)}; known are {', '.join(known)}")
    kind, settings = known[name], Settings(str(path), values)
    config = kind.config(settings, arrays.keys())
    tokenizer = None
    try:
        tokenizer = tokenizer_of_gguf(values) if gguf else tokenizer_of_folder(path)
    except InputError as error:
        settings.wrong.append(str(error))
    # in a GGUF file the list of tokens tells both
    ids = [] if gguf or tokenizer is None else tokenizer.tokenizer.get_vocab().values()
    _check_claim(config, arrays, ids, settings)
    model = kind.model(config, None, dtype)
    found, wrong = matched(model, kind.names, arrays, gguf)
    settings.wrong += wrong
    if not settings.wrong:
        settings.wrong += fill(model, found, gguf)
    if settings.wrong or tokenizer is None:
        raise settings.error()
    return Pretrained(model, tokenizer)


def _check_claim(config: Any, arrays: Arrays, ids: Collection[int], settings: Settings) -> None:
    """Before a model is built: if a tensor is missing, its name is told later; if half of all are, it is not built."""
    if max(ids, default=0) >= config.vocab_size and not settings.guessed:
        settings.wrong.append(f"its tokenizer has ids up to {max(ids)}, its settings allow {config.vocab_size} tokens")
    held = sum(math.prod(stored.shape) for stored in arrays.values())
    rows = config.vocab_size + getattr(config, "num_types", 0)
    rows += config.context_length if config.positions == "learned" else 0
    claimed = config.d_model * (rows + config.num_layers * (config.d_model + config.hidden_width()))
    if claimed > 2 * held or config.num_layers > len(arrays):
        settings.wrong.append(
            f"its settings describe {config.num_layers:,} layers and {claimed:,} numbers or more, "
            f"but it holds {len(arrays)} tensors of {held:,} numbers"
        )
        raise settings.error()
    if settings.guessed:
        raise settings.error()
