"""chat: talk to a pretrained model."""

import argparse
import contextlib
import importlib
import re
import sys
import time
from collections.abc import Iterator
from typing import Any

from numpy_attention.cli.source import add_model, encoded, load_model
from numpy_attention.cli.words import add_sampling, sampling, words
from numpy_attention.errors import InputError, one_line
from numpy_attention.models.gpt import GPT
from numpy_attention.pretrained.chat import Chat
from numpy_attention.pretrained.conversation import Conversation
from numpy_attention.pretrained.tokenizer import Tokenizer
from numpy_attention.runs.parallel import all_cores
from numpy_attention.runs.progress import per_second

COMMANDS = "/reset forgets what was said, /exit or Ctrl-D ends; Ctrl-C ends an answer, and at the prompt the program"


def add_parser(commands: Any) -> None:
    """The arguments of `chat`."""
    parser = commands.add_parser("chat", help="talk to a pretrained model", description=COMMANDS, allow_abbrev=False)
    add_model(parser, "smollm2")
    parser.add_argument("--system", default=None, help="what the model is told first (default: as it was trained)")
    add_sampling(parser, tokens=512, temperature=0.0)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Read a line, print the answer, and so on to the end of the input."""
    a = arguments
    if sys.stdin is None:
        raise InputError("there is nobody to talk to: the input is closed")
    sampling(a)  # what is wrong with the options is said before the model is read
    model, tokenizer = load_model(a.model, GPT, "talk")
    if not isinstance(tokenizer, Tokenizer):
        raise InputError(f"{a.model} has learned to continue texts, not to talk; use sample")
    encoded(tokenizer, a.system or "", "--system")
    chat = Chat(tokenizer, a.system)
    conversation = Conversation(model, chat, **sampling(a))
    if sys.stdin.isatty():
        with contextlib.suppress(ImportError):
            importlib.import_module("readline")  # arrow keys, and what was typed before
        _aside(COMMANDS)
    while (said := _line()) is not None:
        if said == "/exit":
            break
        if said == "/help":
            _aside(COMMANDS)
        elif said == "/reset":
            conversation = Conversation(model, chat, **sampling(a))
            _aside("forgotten")
        elif re.fullmatch(r"/\w+", said):
            _aside(f"there is no command {said}; /help tells which there are")
        elif said:
            with all_cores():
                _answer(conversation, said, a.tokens)
    return 0


def _line() -> str | None:
    """What the user says next; None at the end."""
    person = sys.stdin.isatty() and sys.stdout.isatty()
    try:
        return input("> " if person else "").strip()
    except (EOFError, KeyboardInterrupt):
        if person:
            print()
        return None
    except UnicodeDecodeError:
        raise InputError("the input is not UTF-8 text; iconv -t UTF-8 converts texts") from None
    except OSError as error:
        raise InputError(f"cannot read the input: {error.strerror or error}") from None


def _answer(conversation: Conversation, said: str, num_tokens: int) -> None:
    """Print an answer as it comes, and what it took."""
    times = [time.perf_counter()]  # of the question, and of each token
    ending = ""

    def timed() -> Iterator[int]:
        for i in conversation.answer(said, num_tokens):
            times.append(time.perf_counter())
            yield i

    try:
        for piece in words(conversation.chat.tokenizer, timed()):
            print(piece, end="", flush=True)
    except KeyboardInterrupt:
        ending = "broken off; "
    except InputError as error:
        _aside(one_line(error))
        return
    print(flush=True)
    count = len(times) - 1
    if conversation.tokens_left == 0:
        ending = "the context is full, /reset forgets what was said; "
    elif count == num_tokens:
        ending = "more with --tokens; "
    speed = f", {per_second(count - 1, times[-1] - times[1]):.1f} tokens/s" if count > 1 else ""
    first = f", the first after {times[1] - times[0]:.1f} s" if count else ""
    taken = f"{len(conversation.ids):,} of {conversation.context:,} tokens of context"
    _aside(f"{ending}{count} {'token' if count == 1 else 'tokens'}{speed}{first}; {taken}")


def _aside(text: str) -> None:
    """What is no part of an answer, dimmed on a terminal."""
    print(f"\033[2m{text}\033[0m" if sys.stderr.isatty() else text, file=sys.stderr, flush=True)
