"""attend and embed: a model reads a text, and we see its attention or compare meanings."""

import argparse
from typing import Any

import numpy as np

from numpy_attention.app import plots
from numpy_attention.app.source import encoded, load_model
from numpy_attention.errors import InputError
from numpy_attention.models.model import Model
from numpy_attention.models.text_encoder import TextEncoder
from numpy_attention.training.data import read_text
from numpy_attention.training.parallel import Workers, usable_cores

TEXT = "The value of the expression is"  # for the small GPT that comes with the book
LONGEST = 512  # tokens: the weights of all heads are in memory together


def attend(a: argparse.Namespace) -> int:
    """Draw the attention of a model that reads a text: write the picture and print its path.

    A picture has no room for the heads of all layers, so one layer is drawn. A head without a useful token looks at the
    first token. So, without --layer, the command draws the layer that looks least at the first token.
    """
    model, vocabulary = load_model(a.model, Model, "be drawn")
    ids = encoded(vocabulary, a.text, "--text", min(LONGEST, model.config.context_length))
    weights = model.attention_weights(ids[None])  # {layer: (1, H, T, T)}
    layer = np.argmin([w[..., 0].mean() for w in weights.values()]) if a.layer is None else a.layer
    for option, index, limit in (("--layer", layer, len(weights)), ("--head", a.head or 0, model.config.num_heads)):
        if not 0 <= index < limit:
            raise InputError(f"{option} must be from 0 to {limit - 1}, got {index}")
    title, heads = list(weights)[layer], list(weights.values())[layer][0]  # (H, T, T)
    axes: Any = {"x": "key: the token looked at", "y": "query: the token that looks"}
    try:
        if a.head is None:
            figure = plots.attention_heads(heads, vocabulary.labels(ids), title=title, **axes)
        else:
            title += f", head {a.head}"
            figure = plots.attention_map(heads[a.head], vocabulary.labels(ids), title=title, **axes)
        plots.save(figure, a.out)
    except (ModuleNotFoundError, ValueError) as error:  # no matplotlib, an unknown ending, or weights with NaN
        raise InputError(str(error)) from None
    print(f"{a.out}: {title} for {a.text!r}")
    return 0


def embed(a: argparse.Namespace) -> int:
    """Print the lines of a text whose meaning is nearest to a query, each with its cosine and its line number."""
    lines = {n: line.strip() for n, line in enumerate(read_text(a.file).split("\n"), 1) if line.strip()}
    model, vocabulary = load_model(a.model, TextEncoder, "compare meanings")
    limit = model.config.context_length
    query = encoded(vocabulary, a.query.strip(), "--query", limit)
    ids = [encoded(vocabulary, line, str(a.file)) for line in lines.values()]
    with Workers(usable_cores()) as workers:
        y, *others = workers.map(lambda one: model.forward(one[None, :limit])[0][0], [query, *ids])  # each (d_model,)
    cosines = {n: float(y @ other) for n, other in zip(lines, others)}
    for n in sorted(cosines, key=lambda n: -cosines[n])[: a.top]:
        print(f"{cosines[n]:6.3f}  {n:>{len(str(max(lines)))}}  {lines[n]}")
    return 0
