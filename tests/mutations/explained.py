"""The mutations outside of ops/ that no test can notice, each with its reason: they change the source, but no result.

`before -> after` as `python -m tests.mutations` prints them; where the same change of the same function also stands in
other lines, ` | ` and the line come after it.
"""

from tests.gallery.explained import Explained
from tests.mutations.changes import Mutation

ALL_COLUMNS = "(len(prompts), T + num_tokens), dtype=np.int64"

EXPLAINED = (
    Explained("gradcheck/differences.one_sided", (":6 -> :",),
              "A few more entries to choose the best from: the slope is the same within its bar."),
    Explained("gradcheck/differences.refined",
              ("found.error < 0.5 * best.error -> found.error <= 0.5 * best.error",),
              "The seam of a tolerance; what is unknown twice is the same."),
    Explained("gradcheck/elements._look_with_differences",
              ("np.zeros(found.wrong.size, dtype=bool) -> np.zeros(found.wrong.size)",),
              "Marks: what is not zero is looked at."),
    Explained("gradcheck/differences.check_ties", ("found.error <= slack -> found.error < slack",),
              "The seam of a tolerance; where it is zero, the slope and the claim are zero too, and that is right."),
    Explained("gradcheck/trees.children",
              ("zip(value._fields, value, strict=True) -> zip(value._fields, value)",),
              "A NamedTuple holds as many values as it has fields."),
    Explained("gradcheck/experiments._near", ("np.abs(a - b) <= slack -> np.abs(a - b) < slack",),
              "The seam of a tolerance that is never zero."),
    Explained("gradcheck/experiments.deaf_to_places_of_dy", ("0 < len(deaf) < n -> 0 <= len(deaf) < n",),
              "By no part of dy nothing is moved: it costs two calls."),
    Explained("layers/feed_forward.FeedForward.backward",
              ("gated is None or self.w_gate is None -> gated is None and self.w_gate is None",),
              "They are None together; both are asked for the sake of the types."),
    Explained("layers/kv_cache.KeyValueCache.append",
              ("self.k is None or self.v is None -> self.k is None and self.v is None",),
              "They are None together; both are asked for the sake of the types."),
    Explained("layers/kv_cache.KeyValueCache.append", ("-2 -> 2",),
              "Keys have four axes: the last but one is axis 2."),
    Explained("layers/kv_cache.KeyValueCache.filled",
              ("self.k is None or self.v is None -> self.k is None and self.v is None",),
              "They are None together; both are asked for the sake of the types."),
    Explained("models/generate.generate",
              (f"np.zeros({ALL_COLUMNS}) -> np.ones({ALL_COLUMNS})",),
              "What stands before a shorter prompt is hidden; what comes after prompts is written before it is read."),
    Explained("models/sampling.sample", ("-1 -> 1",), "The logits have two axes: the last one is axis 1."),
    Explained("models/search.greedy_search",
              ("np.full((B, 1 + max_tokens), stop_token, dtype=np.int64) -> np.full((B, 1 + max_tokens), stop_token)",),
              "NumPy makes int64 of Python's integers by itself."),
    Explained("models/seq2seq.Seq2Seq._decoder_states",
              ("max(T, context.shape[1]) -> min(T, context.shape[1])",),
              "Two ways to the same result: in tiles, or with all weights at once."),
    Explained("models/stack.stack_gradients",
              ("norm is not None and cache.norm is not None -> cache.norm is not None",),
              "They are None together; both are asked for the sake of the types."),
    Explained("pretrained/safetensors_files._add_changes",
              ("np.zeros((), w.dtype) -> np.ones((), w.dtype)",),
              "Its dtype and the shape it is spread to are compared, and not its numbers."),
    Explained("runs/config._nearest", (":80 -> :",),
              "A word that long is near to no name, with its end or without."),
    Explained("runs/log.Log.__init__",
              ("...for line in kept)), encoding='utf-8') -> ...for line in kept)))",),
              "What JSON is written here holds nothing but ASCII."),
    Explained("training/data", ("2 ** 20 -> 2 * 20 | READ_AT_ONCE = 2 ** 20",),
              "It says how much of a file is read at once."),
    Explained("training/long_texts._header", ("False -> True",),
              "Of a single axis, both orders are one."),
    Explained("training/optimizers.Adam._move", ("np.sqrt(v, out=square) -> np.sqrt(v)",),
              "The same numbers in memory of their own."),
)


def reason_for(mutation: Mutation) -> str:
    """Why this mutation survives; empty when nobody has said."""
    said = {mutation.change, f"{mutation.change} | {mutation.statement}"}
    return next((one.reason for one in EXPLAINED if one.place == mutation.place and said & {*one.changes}), "")
