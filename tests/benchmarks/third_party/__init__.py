"""Third-party functions, each with its right gradient: typical functions of users of a gradient checker."""

from tests.benchmarks.third_party.algebra import ALGEBRA
from tests.benchmarks.third_party.function import SCALES, Arrays, ThirdParty, draw
from tests.benchmarks.third_party.losses import LOSSES
from tests.benchmarks.third_party.networks import NETWORKS
from tests.benchmarks.third_party.signals import SIGNALS

THIRD_PARTY = {function.name: function for function in (*NETWORKS, *ALGEBRA, *SIGNALS, *LOSSES)}

__all__ = ["SCALES", "THIRD_PARTY", "Arrays", "ThirdParty", "draw"]
