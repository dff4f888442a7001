"""Find the model that a command names: a pretrained model or the output of `train`. Also: paths in arguments."""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from numpy_attention.app.tasks import make_task
from numpy_attention.errors import InputError
from numpy_attention.files import read_into
from numpy_attention.models.model import Model
from numpy_attention.pretrained.fetch import located
from numpy_attention.pretrained.fine_tuning import Start
from numpy_attention.pretrained.load import load_pretrained
from numpy_attention.pretrained.shipped import FOLDER, NO_MODEL_NAMED
from numpy_attention.pretrained.tokenizer import Tokenizer
from numpy_attention.training import checkpoint
from numpy_attention.training.data import CharVocabulary, Vocabulary
from numpy_attention.training.memory import keep_freed_memory
from numpy_attention.training.restore import load_run, text_model
from numpy_attention.training.tasks.dates import SOURCE_CHARACTERS

FILES = "a .gguf file, a folder in Hugging Face's layout, or the output of `train`"


def named_path(name: str) -> Path:
    """The path; an empty name is refused, since pathlib would take it for the current folder.

    Raises: ArgumentTypeError; argparse adds the name of the option.
    """
    if not name:
        raise argparse.ArgumentTypeError("must be a name, got ''; is a shell variable unset?")
    return Path(name)


def add_model(parser: argparse.ArgumentParser, known: str, files: str = FILES, shipped: bool = False) -> None:
    """Add the argument MODEL; with `shipped` it is optional. `known` lists the suitable models of `fetch`."""
    text = f"{known} (see fetch), {files}; a file or folder with the name of a known model is preferred"
    text += " (default: the small GPT that comes with the book)" if shipped else ""
    parser.add_argument("model", metavar="MODEL", help=text, nargs="?" if shipped else None)


def given_or_shipped(model: str | None) -> str:
    """The model that the user named, or the small GPT that comes with the book, with a message on standard error."""
    if model is None:
        print(NO_MODEL_NAMED, file=sys.stderr)
    return str(FOLDER) if model is None else model


def pretrained_path(model: str) -> Path | None:
    """The file or folder of a pretrained model; None for the output of `train`.

    Raises: InputError for a path that does not exist, or a model that has not been fetched.
    """
    path = located(model)
    if path.suffix == ".safetensors" and path.is_file():
        raise InputError(f"{path} holds only the parameters; give the folder that contains it")
    if path.is_file():
        return None if path.suffix == ".npz" else path
    run = (path / checkpoint.NAME).exists() or (path / "log.jsonl").exists()
    return path if (path / "config.json").exists() and not run else None


def load_model(model: str, kind: type[Model], purpose: str) -> tuple[Any, Vocabulary]:
    """A model of the class `kind` and its vocabulary, for a command that runs the model many times.

    Raises: InputError for a model of another kind or a model that cannot be loaded.
    """
    keep_freed_memory()
    found, vocabulary = load_any(model)
    if not isinstance(found, kind):
        raise InputError(f"{model} is a {type(found).__name__}; only a {kind.__name__} can {purpose}")
    return found, vocabulary


def load_any(model: str) -> tuple[Any, Vocabulary]:
    """A model that reads a text, and its vocabulary; a run must have the task text or dates, or fine-tune a model.

    Raises: InputError for other tasks, or if the pretrained model of a fine-tuning has changed.
    """
    found: Model
    vocabulary: Vocabulary
    if (path := pretrained_path(model)) is not None:
        found, vocabulary = load_pretrained(path)
        return found, vocabulary
    config, arrays, meta = load_run(Path(model))
    if config.from_ is not None:
        start = Start(config)
        if meta["task"].get("from_sha256") != start.sha256:
            raise InputError(f"{start.path} is not the model from which {model} started")
        found, vocabulary = start.model(None), start.tokenizer
    elif config.task == "text":
        return text_model(arrays, meta)
    elif config.task == "dates":
        found, vocabulary = make_task(config).model(None), CharVocabulary(SOURCE_CHARACTERS)
    else:
        raise InputError(f"{model} holds a model of the task {config.task!r}; only those of text and dates read a text")
    read_into(found.parameters(), arrays, "parameters.", "model")
    return found, vocabulary


def encoded(vocabulary: Vocabulary, text: str, origin: str) -> np.ndarray:
    """The ids of a whole text, (N,), with the special tokens that a pretrained model needs around it.

    Raises: InputError if the text cannot be encoded; the message names its origin, an option or a file.
    """
    try:
        ids = vocabulary.encode_with_special(text) if isinstance(vocabulary, Tokenizer) else vocabulary.encode(text)
    except InputError as error:
        raise InputError(f"{origin}: {error}") from None
    if text and not len(ids):
        raise InputError(f"{origin}: the tokenizer of the model finds no token in the text {text[:80]!r}")
    return ids
