"""sample and chat: a model writes, and its text appears piece by piece; fetch: download a model."""

import argparse
import contextlib
import importlib
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np

from numpy_attention.backend import get_backend
from numpy_attention.errors import InputError, require_number, require_size
from numpy_attention.models.c21a_config import LARGEST
from numpy_attention.models.c23_gpt import GPT
from numpy_attention.models.c23b_generate import stream
from numpy_attention.models.c23c_sampling import check_sampling
from numpy_attention.pretrained.c35_tokenizer import Tokenizer
from numpy_attention.pretrained.c35a_chat import Chat
from numpy_attention.pretrained.c35b_conversation import Conversation
from numpy_attention.pretrained.fetch import fetch as download
from numpy_attention.pretrained.named import encoded, load_model
from numpy_attention.training.c27_data import Vocabulary
from numpy_attention.training.config import option

COMMANDS = "/reset forgets the conversation; /exit or Ctrl-D quits; Ctrl-C stops an answer, and at the prompt it quits"


def fetch(a: argparse.Namespace) -> int:
    """Download a model; print its path and license."""
    print(f"{download(a.name)}: license Apache-2.0")
    return 0


def sample(a: argparse.Namespace) -> int:
    """Print the prompt and its continuation."""
    options = sampling(a)
    model, vocabulary = load_model(a.model, GPT, "continue a prompt")
    model.to(get_backend(a.backend))
    prompt = encoded(vocabulary, a.prompt, "--prompt", prompt=True)
    stop = vocabulary.stop if isinstance(vocabulary, Tokenizer) else ()
    _show(words(vocabulary, chain(prompt.tolist(), stream(model, prompt, a.tokens, stop=stop, **options))))
    return 0


def chat(a: argparse.Namespace) -> int:
    """Read a line and print the answer, until the input ends."""
    options = sampling(a)
    model, tokenizer = load_model(a.model, GPT, "talk")
    if not isinstance(tokenizer, Tokenizer):
        raise InputError(f"{a.model} was trained to continue texts, not to chat; use sample")
    conversation = Conversation(model, Chat(tokenizer, a.system), **options)
    print(COMMANDS, file=sys.stderr)
    with contextlib.suppress(ImportError):
        importlib.import_module("readline")  # arrow keys and the history of lines
    prompt = "> " if sys.stdin.isatty() else ""
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        while (line := input(prompt).strip()) != "/exit":
            if line == "/reset":
                conversation = Conversation(model, conversation.chat, **sampling(a))
            elif line.startswith("/"):
                print(COMMANDS, file=sys.stderr)
            elif line:
                try:
                    _show(words(tokenizer, conversation.answer(line, a.tokens)))
                except InputError as error:  # for example, a question that does not fit into the context
                    print(error, file=sys.stderr)
                print(f"{len(conversation.ids):,} of {conversation.context:,} tokens of context", file=sys.stderr)
    return 0


def _show(pieces: Iterable[str]) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        for piece in pieces:
            print(piece, end="", flush=True)
    print(flush=True)


def sampling(a: argparse.Namespace) -> dict[str, Any]:
    """The options as keyword arguments of `stream`.

    Raises: InputError for impossible settings.
    """
    names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
    try:
        require_number("generate", "tokens", a.tokens, at_least=0, at_most=LARGEST, whole=True)
        rng = np.random.default_rng(require_size("generate", "seed", a.seed, at_least=0))
        options = {"rng": rng, **{name: getattr(a, name) for name in names}}
        check_sampling(**options)
    except ValueError as error:  # it begins with the name of the argument
        argument, _, rest = str(error).removeprefix("generate: ").partition(" ")
        raise InputError(f"{option(argument)} {rest}") from None
    return options


def words(vocabulary: Vocabulary, ids: Iterable[int]) -> Iterator[str]:
    """The text of the ids, piece by piece. A character that needs several ids is held back until it is complete."""
    before: list[int] = []  # the ids of the previous piece, since the text of a token can depend on the token before it
    new: list[int] = []
    text = printed = ""
    for i in ids:
        new.append(i)
        text = vocabulary.decode(np.array(before + new))
        if len(text) > len(printed) and not text.endswith("\ufffd"):  # the decoder's output for an incomplete character
            yield text[len(printed) :]
            before, new = new, []
            text = printed = vocabulary.decode(np.array(before))
    if len(text) > len(printed):
        yield text[len(printed) :]
