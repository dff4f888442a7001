"""The mutations outside of ops/ that no test can notice, each with its reason: they change the source, but no result.

`before -> after` as `python -m tests.mutations` prints them.
"""

from tests.gallery.explained import Explained
from tests.mutations.changes import Mutation

EXPLAINED = (
    Explained("layers/feed_forward.FeedForward.backward",
              ("gated is None or self.w_gate is None -> gated is None and self.w_gate is None",),
              "They are None together; both are asked for the sake of the types."),
)


def reason_for(mutation: Mutation) -> str:
    """Why this mutation survives; empty when nobody has said."""
    return next((one.reason for one in EXPLAINED if one.place == mutation.place and mutation.change in one.changes), "")
