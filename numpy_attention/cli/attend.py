"""attend: draw where a trained model looks."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from numpy_attention import plots
from numpy_attention.errors import InputError
from numpy_attention.files import read_into
from numpy_attention.runs.config import TrainConfig
from numpy_attention.runs.restore import load_run, text_model
from numpy_attention.tasks import make_task
from numpy_attention.tasks.dates import SOURCE_CHARACTERS, START, STOP, TARGET_CHARACTERS, spell
from numpy_attention.training.data import CharVocabulary


class Scene(NamedTuple):
    """What is drawn: the layers that hold the weights, and what stands beside their rows and below their columns."""

    weights: Mapping[str, np.ndarray]  # {layer: (1, H, T_q, T_k)}
    queries: list[str]
    keys: list[str]
    said: str
    x: str  # the name of the columns' axis
    y: str  # and of the rows'


def add_parser(commands: Any) -> None:
    """The arguments of `attend`."""
    parser = commands.add_parser("attend", help="draw a trained model's attention", allow_abbrev=False)
    parser.add_argument("directory", type=Path, metavar="DIR", help="what `train` has written, for text or dates")
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
    if config.task == "text":
        scene = _text(a.text, arrays, meta)
    elif config.task == "dates":
        scene = _dates(a.text, config, arrays)
    else:
        kinds = "only models of the tasks 'text' and 'dates' can read --text"
        raise InputError(f"{a.directory} holds a model of the task {config.task!r}; {kinds}")
    _check_index("--layer", a.layer, len(scene.weights))
    _check_index("--head", a.head, next(iter(scene.weights.values())).shape[1])
    out = a.out or (a.directory if a.directory.is_dir() else a.directory.parent) / "attention.png"
    try:
        plots.save(_draw(scene, a.layer, a.head), out)
    except ModuleNotFoundError as error:
        raise InputError(str(error)) from None
    except (OSError, ValueError) as error:
        raise InputError(f"cannot write {out}: {error}") from None
    layers = ", ".join(f"{name} {w.shape[1]} heads" for name, w in scene.weights.items())
    print(f"{out}: {scene.said}, {layers}")
    return 0


def _text(text: str, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> Scene:
    """A text and itself: who looks back at whom."""
    model, vocabulary = text_model(arrays, meta)
    ids = _within(vocabulary.encode(text), model.config.context_length)
    weights = model.attention_weights(ids[None])
    looks = "key: the character looked at", "query: the character that looks"
    tokens = vocabulary.labels(ids)
    return Scene(weights, tokens, tokens, repr(text), *looks)


def _dates(text: str, config: TrainConfig, arrays: dict[str, np.ndarray]) -> Scene:
    """A written date and its ISO form, as the model writes it: cross-attention, a row for each character written."""
    model = make_task(config).model(None)
    read_into(model.parameters(), arrays, "parameters.", "model")
    ids = 3 + CharVocabulary(SOURCE_CHARACTERS).encode(text)
    source_ids = _within(ids, model.config.context_length)[None]  # (1, T_s)
    written = model.greedy(source_ids, START, STOP)[0]  # (T,)
    read = np.concatenate([[START], written[:-1]])[None]  # what row t has before it when it writes character t
    weights = model.attention_weights(source_ids, read)
    cross = {name: w for name, w in weights.items() if name.endswith("cross_attention")}
    queries = [TARGET_CHARACTERS[i - 3] if i >= 3 else ("pad", "start", "stop")[i] for i in written]
    looks = "key: the character read", "query: the character about to be written"
    return Scene(cross, queries, list(text), f"{text!r} -> {spell(written)!r}", *looks)


def _draw(scene: Scene, layer: int | None, head: int | None) -> Any:
    weights, queries, keys, _, x, y = scene
    if layer is None:
        return plots.attention_layers(weights, queries, keys, x=x, y=y)
    name = list(weights)[layer]
    heads = weights[name][0]  # (H, T_q, T_k)
    if head is None:
        return plots.attention_heads(heads, queries, keys, title=name, x=x, y=y)
    return plots.attention_map(heads[head], queries, keys, title=f"{name}, head {head}", x=x, y=y)


def _within(ids: np.ndarray, limit: int) -> np.ndarray:
    if len(ids) > limit:
        raise InputError(f"--text is {len(ids)} characters long, the model reads at most {limit}")
    return ids


def _check_index(option: str, index: int | None, count: int) -> None:
    if index is not None and not 0 <= index < count:
        raise InputError(f"{option} must be from 0 to {count - 1}, got {index}")
