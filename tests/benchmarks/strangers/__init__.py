"""Functions that are not this book's, each with its right gradient: what people bring to a checker."""

from tests.benchmarks.strangers.algebra import ALGEBRA
from tests.benchmarks.strangers.losses import LOSSES
from tests.benchmarks.strangers.networks import NETWORKS
from tests.benchmarks.strangers.signals import SIGNALS
from tests.benchmarks.strangers.stranger import SCALES, Arrays, Stranger, draw

STRANGERS = {stranger.name: stranger for stranger in (*NETWORKS, *ALGEBRA, *SIGNALS, *LOSSES)}

__all__ = ["SCALES", "STRANGERS", "Arrays", "Stranger", "draw"]
