"""The fresh set: 50 right functions and 169 mistakes, written without reading the checker."""

from tests.gradcheck.acceptance.fresh import (
    convolutions,
    fields,
    held_out,
    losses,
    matrices,
    preferences,
    recurrences,
    routers,
)

FRESH = {
    "preferences": preferences.PAIRS, "recurrences": recurrences.PAIRS, "routers": routers.PAIRS,
    "convolutions": convolutions.PAIRS, "matrices": matrices.PAIRS, "losses": losses.PAIRS, "fields": fields.PAIRS,
}
HELD_OUT = {"held out": held_out.PAIRS}
