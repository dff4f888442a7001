"""attend: draw the attention of a model.

A picture has no room for the heads of many layers, so for a large model only one layer is drawn. A head without a
useful token looks at the first token. So the command draws the layer that looks least at the first token.
"""

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.app import plots
from numpy_attention.app.plots.style import ENDINGS
from numpy_attention.app.source import add_model, encoded, given_or_shipped, load_any, named_path, pretrained_path
from numpy_attention.errors import InputError
from numpy_attention.files import writing
from numpy_attention.models.seq2seq import Seq2Seq
from numpy_attention.pretrained.tokenizer import Tokenizer
from numpy_attention.training.data import Vocabulary
from numpy_attention.training.tasks.dates import START, STOP, TARGET_CHARACTERS, spell

PANELS = 36  # the most heads in a picture of all layers
TEXT = "The value of the expression is"  # for the small GPT that comes with the book
LONGEST = 512  # tokens for a pretrained model: the weights of all its heads are in memory together


class Scene(NamedTuple):
    """The content of the picture: the weights of each layer, and the arguments of every picture of weights."""

    weights: dict[str, np.ndarray]  # {layer: (1, H, T_q, T_k)}
    labels: dict[str, Any]  # queries, keys, x, y
    caption: str


def add_parser(commands: Any) -> None:
    """The arguments of `attend`."""
    parser = commands.add_parser("attend", help="draw a model's attention", allow_abbrev=False)
    add_model(parser, "smollm2 or minilm", shipped=True)
    about = f"a text that is not longer than the model's context; required with MODEL (default without: {TEXT!r})"
    parser.add_argument("--text", default=None, help=about)
    place = "(default: attention.png; for a run, in its directory)"
    parser.add_argument("--out", type=named_path, default=None, help=f"the picture, .png, .svg or .pdf {place}")
    default = f"(default: all, or with more than {PANELS} heads the layer that looks least at the first token)"
    parser.add_argument("--layer", type=int, default=None, help=f"draw this layer only, counted from 0 {default}")
    parser.add_argument("--head", type=int, default=None, help="draw this head only, counted from 0; needs --layer")
    parser.set_defaults(run=run)


def run(a: argparse.Namespace) -> int:
    """Write the picture and print its path."""
    if a.text is None and a.model is not None:
        raise InputError(f"--text is required: give a text for {a.model} to read")
    if a.text == "":
        raise InputError("--text must hold at least one character")
    if a.head is not None and a.layer is None:
        raise InputError(f"--head {a.head} needs --layer: every layer has its own head {a.head}")
    if a.out is not None and a.out.suffix.lower() not in ENDINGS:
        raise InputError(f"--out must end in .png, .svg or .pdf, got {a.out}")
    model, vocabulary = load_any(given_or_shipped(a.model))
    scene = (_dates if isinstance(model, Seq2Seq) else _text)(a.text or TEXT, model, vocabulary)
    names, weights, why = list(scene.weights), list(scene.weights.values()), ""
    num_heads, layer = weights[0].shape[1], a.layer
    for option, index, count in (("--layer", a.layer, len(names)), ("--head", a.head, num_heads)):
        if index is not None and not 0 <= index < count:
            raise InputError(f"{option} must be from 0 to {count - 1}, got {index}")
    if layer is None and len(names) * num_heads > PANELS:
        layer = int(np.argmin([w[..., 0].mean() for w in weights]))
        why = f" (of {len(names)} layers, this one looks least at the first token; --layer draws another)"
    out = a.out or (Path() if a.model is None else _folder(a.model)) / "attention.png"
    try:
        figure = _draw(scene, layer, a.head)
    except (ModuleNotFoundError, ValueError) as error:  # no matplotlib, or weights that are not finite
        raise InputError(str(error)) from None
    with writing(out):
        plots.save(figure, out)
    heads = f"{num_heads} heads" if a.head is None else f"head {a.head}"
    drawn = names if layer is None else [names[layer]]
    print(f"{out}: {scene.caption}, {', '.join(f'{name} {heads}' for name in drawn)}{why}")
    return 0


def _draw(scene: Scene, layer: int | None, head: int | None) -> Any:
    if layer is None:
        return plots.attention_layers(scene.weights, **scene.labels)
    name = list(scene.weights)[layer]
    heads = scene.weights[name][0]  # (H, T_q, T_k)
    if head is None:
        return plots.attention_heads(heads, title=name, **scene.labels)
    return plots.attention_map(heads[head], title=f"{name}, head {head}", **scene.labels)


def _folder(model: str) -> Path:
    """The folder of the picture: for a run its directory, otherwise this folder."""
    path = Path(model)
    return Path() if pretrained_path(model) else path if path.is_dir() else path.parent


def _text(text: str, model: Any, vocabulary: Vocabulary) -> Scene:
    """Self-attention of a text: each token's weights for all tokens."""
    unit = "token" if isinstance(vocabulary, Tokenizer) else "character"
    ids = _ids(vocabulary, text, model, unit)
    if unit == "token" and len(ids) > LONGEST:
        raise InputError(f"--text is {len(ids)} tokens long; a picture of more than {LONGEST} tokens is unreadable")
    looks = {"x": f"key: the {unit} looked at", "y": f"query: the {unit} that looks"}
    return Scene(model.attention_weights(ids[None]), {"queries": vocabulary.labels(ids), **looks}, repr(text))


def _dates(text: str, model: Any, vocabulary: Vocabulary) -> Scene:
    """Cross-attention: a row for each character that the model writes, a column for each character of the date."""
    source_ids = 3 + _ids(vocabulary, text, model, "character")[None]  # (1, T_s)
    written = model.greedy(source_ids, START, STOP)[0]  # (T,)
    read = np.concatenate([[START], written[:-1]])[None]  # the decoder reads t - 1 and writes t
    weights = model.attention_weights(source_ids, read)
    cross = {name: w for name, w in weights.items() if name.endswith("cross_attention")}
    queries = [TARGET_CHARACTERS[i - 3] if i >= 3 else ("pad", "start", "stop")[i] for i in written]
    looks = {"x": "key: the character read", "y": "query: the character about to be written"}
    return Scene(cross, {"queries": queries, "keys": list(text), **looks}, f"{text!r} -> {spell(written)!r}")


def _ids(vocabulary: Vocabulary, text: str, model: Any, unit: str) -> np.ndarray:
    ids, limit = encoded(vocabulary, text, "--text"), model.config.context_length
    if len(ids) > limit:
        raise InputError(f"--text is {len(ids)} {unit}s long; the model reads at most {limit}")
    return ids
