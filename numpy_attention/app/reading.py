"""attend and embed: a model reads a text, and we see its attention or compare meanings."""

import argparse
from typing import Any

import numpy as np

from numpy_attention.app import plots
from numpy_attention.app.main import PANELS
from numpy_attention.errors import InputError
from numpy_attention.files import reading
from numpy_attention.models.c21c_model import Model
from numpy_attention.models.c22a_text_encoder import TextEncoder
from numpy_attention.pretrained.c35_tokenizer import Tokenizer
from numpy_attention.pretrained.named import encoded, load_model
from numpy_attention.training.c27_data import read_text
from numpy_attention.training.c30_parallel import Workers, usable_cores

LONGEST = 512  # tokens: the weights of all heads are in memory together
MAX_FILE = 2**24  # bytes of the text of `embed`; the embeddings of all its lines are in memory together


def attend(a: argparse.Namespace) -> int:
    """Draw the attention of a model that reads a text: write the picture and print its path.

    A picture has no room for the heads of many layers. A head without a useful token looks at the first token. So the
    command draws the layer of a large model that looks least at the first token.
    """
    model, vocabulary = load_model(a.model, Model, "be drawn")
    ids = encoded(vocabulary, a.text, "--text", min(LONGEST, model.config.context_length))
    weights, num_heads, layer = model.attention_weights(ids[None]), model.config.num_heads, a.layer  # (1, H, T, T) each
    if a.head is not None and layer is None:
        raise InputError(f"--head {a.head} needs --layer: every layer has its own head {a.head}")
    for option, index, limit in (("--layer", layer, len(weights)), ("--head", a.head, num_heads)):
        if index is not None and not 0 <= index < limit:
            raise InputError(f"{option} must be from 0 to {limit - 1}, got {index}")
    if layer is None and len(weights) * num_heads > PANELS:
        layer = int(np.argmin([w[..., 0].mean() for w in weights.values()]))
    names = list(weights) if layer is None else [list(weights)[layer]]
    title, tokens = f"{names[0]}, head {a.head}", vocabulary.labels(ids)
    axes: Any = {"x": "key: the token looked at", "y": "query: the token that looks"}
    try:
        if layer is None:
            figure = plots.attention_layers(weights, tokens, **axes)
        elif a.head is None:
            figure = plots.attention_heads(weights[names[0]][0], tokens, title=names[0], **axes)
        else:
            figure = plots.attention_map(weights[names[0]][0, a.head], tokens, title=title, **axes)
        plots.save(figure, a.out)
    except (ModuleNotFoundError, ValueError) as error:  # no matplotlib, an unknown ending, or weights with NaN
        raise InputError(str(error)) from None
    print(f"{a.out}: {', '.join(names) if a.head is None else title} for {a.text!r}")
    return 0


def embed(a: argparse.Namespace) -> int:
    """Print the lines of a text whose meaning is nearest to a query, each with its cosine and its line number."""
    with reading(a.file):
        size = a.file.stat().st_size
    if size > MAX_FILE:
        raise InputError(f"{a.file} is {size:,} bytes long; at most {MAX_FILE:,} are read: split it into smaller files")
    lines = {n: line.strip() for n, line in enumerate(read_text(a.file).split("\n"), 1) if line.strip()}
    model, vocabulary = load_model(a.model, TextEncoder, "compare meanings")
    assert isinstance(vocabulary, Tokenizer)
    limit = min(model.config.context_length, vocabulary.longest or model.config.context_length)
    query = encoded(vocabulary, a.query.strip(), "--query", limit)
    ids = [vocabulary.encode_with_special(line, limit) for line in lines.values()]
    with Workers(usable_cores()) as workers:
        y, *others = workers.map(lambda one: model.forward(one[None])[0][0], [query, *ids])  # each (d_model,)
    cosines = {n: float(y @ other) for n, other in zip(lines, others)}
    for n in sorted(cosines, key=lambda n: -cosines[n])[: a.top]:
        print(f"{cosines[n]:6.3f}  {n:>{len(str(max(lines)))}}  {lines[n]}")
    return 0
