"""sample: continue a prompt with a trained model."""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from numpy_attention.backend import NAMES, get_backend
from numpy_attention.errors import InputError
from numpy_attention.runs.restore import load_run, text_model


def add_parser(commands: Any) -> None:
    """The arguments of `sample`."""
    parser = commands.add_parser("sample", help="continue a prompt with a trained model", allow_abbrev=False)
    parser.add_argument("directory", type=Path, metavar="DIR", help="what `train` has written")
    parser.add_argument("--prompt", default="The ", help="the text to continue (default: 'The ')")
    parser.add_argument("--tokens", type=int, default=200, help="how many tokens to add (default: 200)")
    parser.add_argument("--temperature", type=float, default=0.8, help="0: always the likeliest (default: 0.8)")
    parser.add_argument("--top-k", type=int, default=None, help="draw from the k likeliest only")
    parser.add_argument("--top-p", type=float, default=None, help="draw from the fewest with this probability together")
    parser.add_argument("--seed", type=int, default=0, help="makes the sample repeatable (default: 0)")
    parser.add_argument("--backend", default="numpy", choices=NAMES, help="where to compute (default: numpy)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the prompt and its continuation."""
    a = arguments
    if not a.prompt:
        raise InputError("--prompt must hold at least one character")
    if a.seed < 0:
        raise InputError(f"--seed must be at least 0, got {a.seed}")
    config, arrays, meta = load_run(a.directory)
    if config.task != "text":
        raise InputError(f"{a.directory} holds a model of the task {config.task!r}; only a text model can be sampled")
    model, vocabulary = text_model(arrays, meta)
    model.to(get_backend(a.backend))
    prompt = vocabulary.encode(a.prompt)
    rng = np.random.default_rng(a.seed)
    try:
        ids = model.generate(prompt, a.tokens, rng=rng, temperature=a.temperature, top_k=a.top_k, top_p=a.top_p)
    except ValueError as error:
        raise InputError(str(error)) from None
    print(vocabulary.decode(ids))
    return 0
