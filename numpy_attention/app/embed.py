"""embed: find the lines of a text whose meaning is nearest to a query."""

import argparse

from numpy_attention.app.source import encoded, load_model
from numpy_attention.models.text_encoder import TextEncoder
from numpy_attention.training.data import read_text
from numpy_attention.training.parallel import Workers, usable_cores


def run(a: argparse.Namespace) -> int:
    """Print the nearest lines, each with its cosine and its line number."""
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
