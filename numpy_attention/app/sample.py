"""sample: continue a prompt with a trained model."""

import argparse
import itertools
from typing import Any

from numpy_attention.app.source import add_model, encoded, given_or_shipped, load_model
from numpy_attention.app.words import add_sampling, sampling, words
from numpy_attention.backend import NAMES, get_backend
from numpy_attention.errors import InputError
from numpy_attention.models.generate import stream
from numpy_attention.models.gpt import GPT
from numpy_attention.pretrained.tokenizer import Tokenizer


def add_parser(commands: Any) -> None:
    """The arguments of `sample`."""
    parser = commands.add_parser("sample", help="continue a prompt with a trained model", allow_abbrev=False)
    add_model(parser, "smollm2", shipped=True)
    parser.add_argument("--prompt", default="The ", help="the text to continue (default: 'The ')")
    add_sampling(parser, tokens=200, temperature=0.8)
    parser.add_argument("--backend", default="numpy", choices=NAMES, help="where to compute (default: numpy)")
    parser.set_defaults(run=run)


def run(a: argparse.Namespace) -> int:
    """Print the prompt and its continuation, word by word."""
    if not a.prompt:
        raise InputError("--prompt must hold at least one character")
    options = sampling(a)
    model, vocabulary = load_model(given_or_shipped(a.model), GPT, "continue a prompt")
    model.to(get_backend(a.backend))
    prompt = encoded(vocabulary, a.prompt, "--prompt")
    stop = vocabulary.stop if isinstance(vocabulary, Tokenizer) else ()
    ids = stream(model, prompt, a.tokens, stop=stop, **options)
    for piece in words(vocabulary, itertools.chain(prompt.tolist(), ids)):
        print(piece, end="", flush=True)
    print()
    return 0
