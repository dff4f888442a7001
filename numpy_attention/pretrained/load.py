"""Chapter 36. From a file to a model that speaks

    path --> settings --> GPTConfig --> GPT of zeros --> filled, tensor by tensor (Chapter 34)
         --> tokenizer (Chapter 35)

Nothing else happens: the model is the GPT of Chapter 23. If a file needs something that this book does not have, or if
a tensor is extra, missing or of a wrong shape, all these problems become one error.
"""

import math
from collections.abc import Collection
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.errors import InputError, dtype_error, short_repr
from numpy_attention.models.model import Model
from numpy_attention.pretrained.folders import read_folder
from numpy_attention.pretrained.gguf_files import Arrays, read_gguf
from numpy_attention.pretrained.names import Layout, fill, matched
from numpy_attention.pretrained.settings import FOLDERS, GGUF, Settings, configuration
from numpy_attention.pretrained.tokenizer import Tokenizer, tokenizer_of_folder, tokenizer_of_gguf


class Pretrained(NamedTuple):
    """A model and the tokenizer that it was trained with."""

    model: Model
    tokenizer: Tokenizer


def load_pretrained(path: str | PathLike[str], dtype: Any = np.float32) -> Pretrained:
    """The model and the tokenizer in a `.gguf` file, or in a folder in Hugging Face's layout.

    Kinds of models: GPT-2, BERT (folders only), llama, Qwen 2 and 3, SmolLM3, OLMo 2, and Gemma 3 without images.

    Raises: InputError for a damaged file or a kind of model that this book does not have; TypeError for
    a dtype that is not float32 or float64.
    """
    if np.dtype(dtype) not in (np.float32, np.float64):
        raise dtype_error("load_pretrained", "dtype", "float32 or float64", np.dtype(dtype), "the default is float32")
    path = Path(path)
    gguf = not path.is_dir()
    values, arrays = read_gguf(path) if gguf else read_folder(path)
    name = values.get("general.architecture" if gguf else "model_type")
    known = GGUF if gguf else FOLDERS
    if not isinstance(name, str) or name not in known:
        raise InputError(f"{path} holds a model of the kind {short_repr(name)}; known kinds are {', '.join(known)}")
    kind, settings = known[name], Settings(str(path), values, f"{name}." if gguf else "")
    layout = Layout(kind.names, gguf, gguf and name in ("llama", "smollm3"), name == "gemma3_text")
    config = configuration(kind, settings, arrays)
    tokenizer = None
    try:
        tokenizer = tokenizer_of_gguf(values) if gguf else tokenizer_of_folder(path)
    except InputError as error:
        settings.wrong.append(str(error))
    # in a GGUF file the number of tokens is both the size of the vocabulary and the number of ids
    vocabulary = {} if gguf or tokenizer is None else tokenizer.tokenizer.get_vocab()
    ids = [*vocabulary.values(), *(tokenizer.encode_with_special("").tolist() if tokenizer else ())]
    _check_sizes(config, arrays, ids, settings)
    model = kind.model(config, None, dtype)
    found, wrong = matched(model, layout, arrays)
    settings.wrong += wrong
    if not settings.wrong:
        settings.wrong += fill(model, found, layout)
    if settings.wrong or tokenizer is None:
        raise settings.error()
    return Pretrained(model, tokenizer)


def _check_sizes(config: Any, arrays: Arrays, ids: Collection[int], settings: Settings) -> None:
    """Check the sizes before the model is built: a model more than twice as large as the file is never built. `matched`
    reports single missing tensors later."""
    if max(ids, default=0) >= config.vocab_size and not settings.guessed:
        vocab_size = config.vocab_size
        settings.wrong.append(f"its tokenizer has ids up to {max(ids)}, but its settings allow {vocab_size} tokens")
    held = sum(math.prod(stored.shape) for stored in arrays.values())
    rows = config.vocab_size + getattr(config, "num_types", 0)
    rows += config.context_length if config.positions == "learned" else 0
    of_heads = config.num_heads * (getattr(config, "d_k", None) or config.d_model // config.num_heads)
    claimed = config.d_model * (rows + config.num_layers * (of_heads + config.hidden_width()))
    if claimed > 2 * held or config.num_layers > len(arrays):
        settings.wrong.append(
            f"its settings describe {config.num_layers:,} layers and {claimed:,} numbers or more, "
            f"but it holds {len(arrays)} tensors of {held:,} numbers"
        )
        raise settings.error()
    if settings.guessed:
        raise settings.error()
