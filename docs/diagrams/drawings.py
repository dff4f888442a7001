"""All diagrams of the site, in the order of their pages, and the moving picture of the README."""

from collections.abc import Callable
from pathlib import Path

from docs.diagrams import attention, head, inside, memory, models, work
from docs.diagrams.pen import Drawing

FOLDER = Path(__file__).parents[1] / "_static" / "diagrams"
DRAWINGS: tuple[Callable[[], Drawing], ...] = (
    attention.chain_and_pairs, attention.backward, attention.masks, attention.many_heads, attention.positions,
    attention.since_2023,
    models.layer_norm, models.block, work.two_roads, work.training_step, models.gpt, models.encoder_decoder,
    memory.kv_cache, memory.tiles, inside.induction, inside.places, work.package_layout, work.book_map,
    head.touchable_head,
)
