"""attend: draw where a trained model looks."""

import argparse
from pathlib import Path
from typing import Any

from numpy_attention import plots
from numpy_attention.training.data import InputError
from numpy_attention.training.restore import load_run, text_model


def add_parser(commands: Any) -> None:
    """The arguments of `attend`."""
    parser = commands.add_parser("attend", help="draw a trained model's attention", allow_abbrev=False)
    parser.add_argument("directory", type=Path, metavar="DIR", help="what `train` has written")
    parser.add_argument("--text", required=True, help="what the model reads, at most as long as its context")
    parser.add_argument("--out", type=Path, default=None, help="the picture, .png, .svg or .pdf (DIR/attention.png)")
    parser.add_argument("--layer", type=int, default=None, help="draw this layer only, counted from 0")
    parser.add_argument("--head", type=int, default=None, help="draw this head only, counted from 0; needs --layer")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write the picture and say where it is."""
    a = arguments
    if not a.text:
        raise InputError("--text must hold at least one character")
    if a.head is not None and a.layer is None:
        raise InputError(f"--head {a.head} needs --layer: every layer has a head {a.head}")
    config, arrays, meta = load_run(a.directory)
    if config.task != "text":
        raise InputError(f"{a.directory} holds a model of the task {config.task!r}; only a text model can read --text")
    model, vocabulary = text_model(arrays, meta)
    ids = vocabulary.encode(a.text)
    if len(ids) > model.config.context_length:
        raise InputError(f"--text is {len(ids)} characters long, the model reads at most {model.config.context_length}")
    weights = model.attention_weights(ids[None])  # {layer: (1, H, T, T)}
    _check_index("--layer", a.layer, len(weights))
    _check_index("--head", a.head, model.config.num_heads)

    tokens = list(a.text)
    out = a.out or (a.directory if a.directory.is_dir() else a.directory.parent) / "attention.png"
    try:
        if a.layer is None:
            figure = plots.attention_layers(weights, tokens)
        else:
            name = list(weights)[a.layer]
            title = name if a.head is None else f"{name}, head {a.head}"
            layer = weights[name][0]
            figure = plots.attention_heads(layer, tokens, title=title) if a.head is None else (
                plots.attention_map(layer[a.head], tokens, title=title))
        plots.save(figure, out)
    except ModuleNotFoundError as error:
        raise InputError(str(error)) from None
    except (OSError, ValueError) as error:
        raise InputError(f"cannot write {out}: {error}") from None
    print(f"{out}: {a.text!r}, " + ", ".join(f"{name} {w.shape[1]} heads" for name, w in weights.items()))
    return 0


def _check_index(option: str, index: int | None, count: int) -> None:
    if index is not None and not 0 <= index < count:
        raise InputError(f"{option} must be from 0 to {count - 1}, got {index}")
