"""attend: draw the attention of a model that reads a text.

A picture has no room for the heads of all layers, so one layer is drawn. A head without a useful token looks at the
first token. So, without --layer, the command draws the layer that looks least at the first token.
"""

import argparse
from typing import Any

import numpy as np

from numpy_attention.app import plots
from numpy_attention.app.source import encoded, load_model
from numpy_attention.errors import InputError
from numpy_attention.models.model import Model

TEXT = "The value of the expression is"  # for the small GPT that comes with the book
LONGEST = 512  # tokens: the weights of all heads are in memory together


def run(a: argparse.Namespace) -> int:
    """Write the picture and print its path."""
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
