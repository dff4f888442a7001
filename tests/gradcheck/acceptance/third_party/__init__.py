"""Third-party functions, each with its right gradient: typical functions of users of a gradient checker."""

from tests.gradcheck.acceptance.third_party.algebra import ALGEBRA
from tests.gradcheck.acceptance.third_party.function import SCALES, Arrays, ThirdParty, draw
from tests.gradcheck.acceptance.third_party.losses import LOSSES
from tests.gradcheck.acceptance.third_party.networks import NETWORKS
from tests.gradcheck.acceptance.third_party.signals import SIGNALS

FIELDS = {"networks": NETWORKS, "algebra": ALGEBRA, "signals": SIGNALS, "losses": LOSSES}
THIRD_PARTY = {function.name: function for functions in FIELDS.values() for function in functions}

__all__ = ["FIELDS", "SCALES", "THIRD_PARTY", "Arrays", "ThirdParty", "draw"]
