"""The model that a name stands for: a pretrained model, the output of `train`, or the small GPT of the book."""

import sys
from typing import Any

import numpy as np

from numpy_attention.errors import InputError
from numpy_attention.files import read_into
from numpy_attention.models.c21c_model import Model
from numpy_attention.pretrained.c35_tokenizer import Tokenizer
from numpy_attention.pretrained.c36_load import load_pretrained
from numpy_attention.pretrained.fetch import located
from numpy_attention.pretrained.fine_tuning import Start
from numpy_attention.pretrained.shipped import FOLDER, NO_MODEL_NAMED
from numpy_attention.training import c29_checkpoint as checkpoint
from numpy_attention.training.c27_data import Vocabulary
from numpy_attention.training.memory import keep_freed_memory
from numpy_attention.training.restore import load_run, text_model


def load_model(name: str | None, kind: type[Model], purpose: str) -> tuple[Any, Vocabulary]:
    """A model of the class `kind` and its vocabulary; None is the small GPT that comes with the book.

    Raises: InputError for a model of another kind, and for a model that is missing or cannot be loaded.
    """
    keep_freed_memory()
    if name is None:
        print(NO_MODEL_NAMED, file=sys.stderr)
    path = FOLDER if name is None else located(name)
    model: Any
    vocabulary: Vocabulary
    trained = (path / checkpoint.NAME).exists()
    run = trained or not (path / "config.json").exists()
    if path.suffix == ".safetensors":
        raise InputError(f"{path} holds numbers without settings; give its folder")
    if run and not trained and any(path.glob("*.gguf")):
        raise InputError(f"{path} is a folder with a GGUF file; give the file")
    if path.suffix != ".npz" and (path.is_file() or not run):
        model, vocabulary = load_pretrained(path)
    else:
        config, arrays, meta = load_run(path)
        if config.from_ is not None and config.task in ("text", "dates"):  # the run holds only the learned parameters
            start = Start(config)
            if meta["task"].get("from_sha256") != start.sha256:
                raise InputError(f"{start.path} is not the model from which {name} started")
            model, vocabulary = start.model(None), start.tokenizer
            read_into(model.parameters(), arrays, "parameters.", "model")
        elif config.task == "text":
            model, vocabulary = text_model(arrays, meta)
        else:
            raise InputError(f"{path} holds a model of the task {config.task!r}; only a text model reads a text")
    if not isinstance(model, kind):
        raise InputError(f"{path} is a {type(model).__name__}; only a {kind.__name__} can {purpose}")
    return model, vocabulary


def encoded(
    vocabulary: Vocabulary, text: str, origin: str, most: int | None = None, prompt: bool = False
) -> np.ndarray:
    """The ids of a whole text, (N,), with the special tokens that a pretrained model needs: around the text, or for a
    `prompt` only before it.

    Raises: InputError for an empty text, for more than `most` tokens, and for a text that cannot be encoded.
    """
    if not text:
        raise InputError(f"{origin} must hold at least one character")
    if isinstance(vocabulary, Tokenizer):
        ids = vocabulary.encode_prompt(text) if prompt else vocabulary.encode_with_special(text)
    else:
        ids = vocabulary.encode(text)
    if most is not None and len(ids) > most:
        raise InputError(f"{origin} is {len(ids)} tokens long; at most {most} are possible")
    return ids
