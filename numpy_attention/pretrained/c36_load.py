"""Chapter 36. From a file to a model that speaks

    path --> settings --> GPTConfig --> GPT of zeros --> filled, tensor by tensor (Chapter 34)
         --> tokenizer (Chapter 35)

Nothing else happens: the model is the GPT of Chapter 23. If a file needs something that this book does not have, or if
tensors are extra, missing or of a wrong shape, one error names them.
"""

import dataclasses
import warnings
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.errors import InputError, dtype_error, several, short_repr
from numpy_attention.models.c21c_model import Model
from numpy_attention.models.c22a_text_encoder import TextEncoder
from numpy_attention.pretrained.c33_gguf_files import Arrays, read_gguf
from numpy_attention.pretrained.c33a_folders import read_folder, read_pooling
from numpy_attention.pretrained.c34_names import fill
from numpy_attention.pretrained.c34a_settings import FOLDERS, GGUF, Settings, configuration
from numpy_attention.pretrained.c35_tokenizer import Tokenizer, tokenizer_of_folder, tokenizer_of_gguf

WITH_IMAGES = (  # a Gemma 3 with images
    "save its text part with transformers, then copy the files of the tokenizer into the new folder: "
    "AutoModelForImageTextToText.from_pretrained(FOLDER).model.language_model.save_pretrained(NEW_FOLDER)"
)


class Pretrained(NamedTuple):
    """A model and the tokenizer that it was trained with."""

    model: Model
    tokenizer: Tokenizer


def load_pretrained(path: str | PathLike[str], dtype: Any = np.float32) -> Pretrained:
    """The model and the tokenizer in a `.gguf` file, or in a folder in Hugging Face's layout.

    Kinds of models: GPT-2, llama, Qwen 2 and 3, SmolLM3, OLMo 2, and Gemma 3 without images; only from folders: BERT,
    Mixtral, and Qwen 3 with experts. A warning names the heads of a BERT for other tasks, which are left out; its
    pooler is left out too. A BERT takes the mean of its tokens, or the first token if the file 1_Pooling/config.json
    says so.

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
        fix = WITH_IMAGES if name == "gemma3" and not gguf else f"known kinds are {', '.join(known)}"
        raise InputError(f"{path} holds a model of the kind {short_repr(name)}; {fix}")
    kind = known[name]
    try:
        tokenizer = tokenizer_of_gguf(values) if gguf else tokenizer_of_folder(path)
        config = configuration(kind, Settings(values, f"{name}." if gguf else ""), arrays)
        if kind.model is TextEncoder:
            config = dataclasses.replace(config, pooling=read_pooling(path))
        _check_sizes(config, arrays, tokenizer)
        model = kind.model(config, None, dtype)
        interleaved = gguf and name in ("llama", "smollm3")
        left_out = fill(model, arrays, kind.names, gguf, interleaved, less_one=name == "gemma3_text")
    except (InputError, MemoryError) as error:
        raise InputError(f"{path} cannot be loaded: {error}") from None
    if left_out:
        warnings.warn(f"{path}: left out, because a TextEncoder has no such head: {several(left_out)}", stacklevel=2)
    return Pretrained(model, tokenizer)


def _check_sizes(config: Any, arrays: Arrays, tokenizer: Tokenizer) -> None:
    """Check sizes that would take much time or memory to build; the shapes of all tensors are compared later."""
    largest = max(*tokenizer.tokenizer.get_vocab().values(), *tokenizer.encode_with_special(""), 0)
    if largest >= config.vocab_size:
        raise InputError(f"its tokenizer has ids up to {largest}, but its settings allow {config.vocab_size} tokens")
    held = sum(stored.size for stored in arrays.values())
    networks = config.num_layers * getattr(config, "num_experts", 1)
    if config.vocab_size * config.d_model > held or networks > len(arrays):
        raise InputError(
            f"its settings describe {config.num_layers:,} layers, {networks:,} feed-forward networks, and a table of "
            f"{config.vocab_size:,} tokens of {config.d_model:,} numbers, but it holds {len(arrays):,} tensors of "
            f"{held:,} numbers"
        )
