"""The operator mutations that nobody can notice, each with its reason: they change the source, but no result.

`before -> after` as `operator_mutations.py` prints them. A survivor that is not here fails the slow test.
"""

from typing import NamedTuple


class Explained(NamedTuple):
    """Changes of one function that survive for one reason."""

    place: str  # chapter.function
    changes: tuple[str, ...]
    reason: str


DRAWN = "random.random(s.shape, dtype=np.float32)"

EXPLAINED = (
    Explained("embedding.add_at", ("not on_host(ids) -> on_host(ids)",),
              "Two ways to the same sum: sort and add up runs on the host, np.add.at on a GPU."),
    Explained("embedding.add_at", ("sorted_ids[:1] - 1 -> sorted_ids[:1] + 1", "1 -> 2"),
              "Any number but the first id marks where the first run begins."),
    Explained("embedding.add_at",
              ("dy.size >= LONG_RUN * len(first_of_run) -> dy.size > LONG_RUN * len(first_of_run)",
               "LONG_RUN * len(first_of_run) -> LONG_RUN / len(first_of_run)",
               "LONG_RUN * len(first_of_run) -> LONG_RUN", "LONG_RUN * len(first_of_run) -> len(first_of_run)"),
              "Two ways to the same sum: run by run, or all runs at once."),
    Explained("positions.alibi_slopes", ("2 -> 4",),
              "More slopes in between are made than the cut that follows lets through."),
    Explained("attention.fold_heads", ("2 -> 4", "-2 -> 2"),
              "Without the short cut for heads that share nothing, the reshape leaves the array as it is."),
    Explained("tiled_attention.tiled_attention", ("-2 -> 2", "2 -> 4"),
              "The number of keys says only how large the tiles are."),
    Explained("tiles.settle",
              ("columns.stop - 1 > nearest -> columns.stop - 1 >= nearest", "columns.stop - 1 -> columns.stop + 1",
               "columns.stop - 1 -> columns.stop", "rows.start + self.offset -> self.offset"),
              "A short cut for tiles that lie wholly in the past, where hiding hides nothing."),
    Explained("tiles.settle",
              ("rows.stop - 1 -> rows.stop + 1", "rows.stop - 1 -> rows.stop", "farthest - window -> farthest + window",
               "farthest - window -> farthest"),
              "A short cut for tiles that lie within every window, where hiding hides nothing."),
    Explained("tiles.__init__",
              ("(1,) * (q.ndim - mask.ndim) + mask.shape -> mask.shape",),
              "Broadcasting puts the missing axes in front by itself."),
    Explained("tiles.factors", ("0 -> 1",), "Any number will do to begin with, if it is the same for all tiles."),
    Explained("tiles.factors",
              (f"{DRAWN} >= self.rate -> {DRAWN} > self.rate",),
              "They differ when a random number equals the rate: once in sixteen million draws."),
    Explained("activations.relu", ("x > 0.0 -> x >= 0.0",),
              "On the corner there is no derivative; the slope of either side will do."),
    Explained("activations.gelu", ("100.0 -> 200.0",),
              "The bounds keep squares finite; the weight is 0 or 1 to the last digit long before."),
    Explained("erf._by_tanh", ("6.0 -> 12.0",),
              "The bound keeps high powers finite; tanh is 1 to the last digit on both sides of it."),
    Explained("erf._by_cody", ("0.46875 -> 0.9375", "4.0 -> 8.0", "10.0 -> 20.0"),
              "These bounds keep an approximation finite where it is not used; 10 lies beyond the last digit of 1."),
    Explained("erf._by_cody", ("size <= 0.46875 -> size < 0.46875", "size <= 4.0 -> size < 4.0"),
              "On the seam both approximations agree to the last digit."),
    Explained("erf._by_cody", ("x < 0.0 -> x <= 0.0",), "At zero the result is zero with either sign."),
    Explained("dropout.dropout", ("0.0 -> 1.0",),
              "A rate of 0 is a short cut: the long way keeps everything and multiplies by one."),
    Explained("dropout.dropout", ("1.0 -> 2.0",), "The scale of a cache without a mask is never read."),
    Explained("dropout.dropout",
              ("rng.random(x.shape, dtype=np.float32) >= rate -> rng.random(x.shape, dtype=np.float32) > rate",),
              "They differ when a random number equals the rate: once in sixteen million draws."),
    Explained("losses.counted_places", ("0 -> 1",), "Any token will do at a place that does not count."),
    Explained("losses.surprise_in_rows", ("-1 -> 1",), "The array has two axes: the last one is axis 1."),
    Explained("losses.gradient_in_rows", ("-1 -> 1",), "The array has two axes: the last one is axis 1."),
)


def reason_for(place: str, change: str) -> str:
    """Why this mutation survives; empty when nobody has said."""
    return next((one.reason for one in EXPLAINED if one.place == place and change in one.changes), "")
