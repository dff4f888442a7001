"""chat: talk to a pretrained model."""

import argparse
import contextlib
import importlib
import re
import sys
import time
from collections.abc import Iterator
from typing import Any

from numpy_attention.app.source import add_model, encoded, load_model
from numpy_attention.app.words import add_sampling, sampling, words
from numpy_attention.errors import InputError, one_line
from numpy_attention.models.gpt import GPT
from numpy_attention.pretrained.chat import Chat
from numpy_attention.pretrained.conversation import Conversation
from numpy_attention.pretrained.tokenizer import Tokenizer
from numpy_attention.training.progress import per_second

COMMANDS = "/reset forgets the conversation; /exit or Ctrl-D quits; Ctrl-C stops an answer, and at the prompt it quits"


def add_parser(commands: Any) -> None:
    """The arguments of `chat`."""
    parser = commands.add_parser("chat", help="talk to a pretrained model", description=COMMANDS, allow_abbrev=False)
    add_model(parser, "smollm2")
    parser.add_argument("--system", default=None, help="the system message (default: as in training)")
    add_sampling(parser, tokens=512, temperature=0.0)
    parser.set_defaults(run=run)


def run(a: argparse.Namespace) -> int:
    """Read a line and print the answer, until the input ends."""
    sampling(a)  # report wrong options before loading the model
    model, tokenizer = load_model(a.model, GPT, "talk")
    if not isinstance(tokenizer, Tokenizer):
        raise InputError(f"{a.model} was trained to continue texts, not to chat; use sample")
    encoded(tokenizer, a.system or "", "--system")
    chat = Chat(tokenizer, a.system)
    conversation = Conversation(model, chat, **sampling(a))
    if sys.stdin.isatty():
        with contextlib.suppress(ImportError):
            importlib.import_module("readline")  # arrow keys and the history of lines
        _aside(COMMANDS)
    for line in _lines():
        if line == "/help":
            _aside(COMMANDS)
        elif line == "/reset":
            conversation = Conversation(model, chat, **sampling(a))
            _aside("conversation forgotten")
        elif re.fullmatch(r"/\w+", line):
            _aside(f"there is no command {line}; /help lists the commands")
        elif line:
            _answer(conversation, line, a.tokens)
    return 0


def _lines() -> Iterator[str]:
    """The user's lines until /exit, the end of the input, or Ctrl-C at the prompt."""
    person = sys.stdin.isatty() and sys.stdout.isatty()
    try:
        while (line := input("> " if person else "").strip()) != "/exit":
            yield line
    except (EOFError, KeyboardInterrupt):
        print(end="\n" if person else "")
    except UnicodeError:
        raise InputError(f"the input is not {sys.stdin.encoding} text; convert it with iconv") from None


def _answer(conversation: Conversation, question: str, num_tokens: int) -> None:
    """Print an answer token by token, then its length and speed."""
    times = [time.perf_counter()]  # of the question and of each token
    ending = ""

    def timed() -> Iterator[int]:
        for i in conversation.answer(question, num_tokens):
            times.append(time.perf_counter())
            yield i

    try:
        for piece in words(conversation.chat.tokenizer, timed()):
            print(piece, end="", flush=True)
    except KeyboardInterrupt:
        ending = "stopped; "
    except InputError as error:
        _aside(one_line(error))
        return
    print(flush=True)
    count = len(times) - 1
    if conversation.tokens_left == 0:
        ending = "the context is full, /reset forgets the conversation; "
    elif count == num_tokens:
        ending = "--tokens allows longer answers; "
    speed = f", {per_second(count - 1, times[-1] - times[1]):.1f} tokens/s" if count > 1 else ""
    first = f", the first after {times[1] - times[0]:.1f} s" if count else ""
    taken = f"{len(conversation.ids):,} of {conversation.context:,} tokens of context"
    _aside(f"{ending}{count} {'token' if count == 1 else 'tokens'}{speed}{first}; {taken}")


def _aside(text: str) -> None:
    """Print a message that is not part of an answer, dimmed on a terminal."""
    print(f"\033[2m{text}\033[0m" if sys.stderr.isatty() else text, file=sys.stderr, flush=True)
