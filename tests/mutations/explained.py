"""The mutations that nobody can notice, each with its reason: they change the source, but no result.

`before -> after` as `python -m tests.mutations` prints them; where the same change of the same function also stands in
other lines, ` | ` and the line come after it, and where it stands more than once in the line, ` | ` and its number. A
survivor that is not here fails a test.
"""

from typing import NamedTuple

from tests.mutations.changes import Mutation


class Explained(NamedTuple):
    """Changes of one function that survive for one reason."""

    place: str  # room/file.function
    changes: tuple[str, ...]
    reason: str


DRAWN = "random.random(s.shape, dtype=np.float32)"
FIRST = "first_of_run = np.flatnonzero(np.diff(sorted_ids, prepend=sorted_ids[:1] - 1))"
BETWEEN = "between = 2.0 ** (-8.0 * np.arange(1, 2 * lower, 2) / (2 * lower))"
SHARED = "if x.shape[:-2] == k.shape[:-2]:"
ALL_COLUMNS = "(len(prompts), T + num_tokens), dtype=np.int64"

OF_CHAPTERS = (
    Explained("ops/embedding.add_at", ("not on_host(ids) -> on_host(ids)",),
              "Two ways to the same sum: sort and add up runs on the host, np.add.at on a GPU."),
    Explained("ops/embedding.add_at", ("sorted_ids[:1] - 1 -> sorted_ids[:1] + 1", f"1 -> 2 | {FIRST} | 2"),
              "Any number but the first id marks where the first run begins."),
    Explained("ops/embedding.add_at",
              ("dy.size >= LONG_RUN * len(first_of_run) -> dy.size > LONG_RUN * len(first_of_run)",
               "LONG_RUN * len(first_of_run) -> LONG_RUN / len(first_of_run)",
               "LONG_RUN * len(first_of_run) -> LONG_RUN", "LONG_RUN * len(first_of_run) -> len(first_of_run)"),
              "Two ways to the same sum: run by run, or all runs at once."),
    Explained("ops/positions.alibi_slopes", (f"2 -> 4 | {BETWEEN} | 1",),
              "More slopes in between are made than the cut that follows lets through."),
    Explained("ops/attention.fold_heads", (f"2 -> 4 | {SHARED}", f"-2 -> 2 | {SHARED}"),
              "Without the short cut for heads that share nothing, the reshape leaves the array as it is."),
    Explained("ops/tiles.apply_band",
              ("columns.stop - 1 > nearest -> columns.stop - 1 >= nearest", "columns.stop - 1 -> columns.stop + 1",
               "columns.stop - 1 -> columns.stop", "rows.start + self.offset -> self.offset"),
              "A short cut for tiles that lie wholly in the past, where hiding hides nothing."),
    Explained("ops/tiles.apply_band",
              ("rows.stop - 1 -> rows.stop + 1", "rows.stop - 1 -> rows.stop", "farthest - window -> farthest + window",
               "farthest - window -> farthest"),
              "A short cut for tiles that lie within every window, where hiding hides nothing."),
    Explained("ops/tiles.__init__",
              ("(1,) * (q.ndim - mask.ndim) + mask.shape -> mask.shape",),
              "Broadcasting puts the missing axes in front by itself."),
    Explained("ops/tiles.factors", ("0 -> 1",), "Any number will do to begin with, if it is the same for all tiles."),
    Explained("ops/tiles.factors",
              (f"{DRAWN} >= self.rate -> {DRAWN} > self.rate",),
              "They differ when a random number equals the rate: once in sixteen million draws."),
    Explained("ops/activations.relu", ("x > 0.0 -> x >= 0.0",),
              "On the corner there is no derivative; the slope of either side will do."),
    Explained("ops/activations.gelu", ("100.0 -> 200.0",),
              "The bounds keep squares finite; the weight is 0 or 1 to the last digit long before."),
    Explained("ops/erf._by_tanh", ("6.0 -> 12.0",),
              "The bound keeps high powers finite; tanh is 1 to the last digit on both sides of it."),
    Explained("ops/erf._by_cody",
              ("0.46875 -> 0.9375 | near = np.minimum(size, 0.46875)",
               "4.0 -> 8.0 | middle = np.clip(size, 0.46875, 4.0)", "10.0 -> 20.0"),
              "These bounds keep an approximation finite where it is not used; 10 lies beyond the last digit of 1."),
    Explained("ops/erf._by_cody", ("size <= 0.46875 -> size < 0.46875", "size <= 4.0 -> size < 4.0"),
              "On the seam both approximations agree to the last digit."),
    Explained("ops/erf._by_cody", ("x < 0.0 -> x <= 0.0",), "At zero the result is zero with either sign."),
    Explained("ops/dropout.dropout", ("0.0 -> 1.0",),
              "A rate of 0 is a short cut: the long way keeps everything and multiplies by one."),
    Explained("ops/dropout.dropout", ("1.0 -> 2.0 | return x, DropoutCache(None, 1.0, x.shape, x.dtype)",),
              "The scale of a cache without a mask is never read."),
    Explained("ops/dropout.dropout",
              ("rng.random(x.shape, dtype=np.float32) >= rate -> rng.random(x.shape, dtype=np.float32) > rate",),
              "They differ when a random number equals the rate: once in sixteen million draws."),
    Explained("ops/losses.counted_places", ("0 -> 1",), "Any token will do at a place that does not count."),
    Explained("ops/losses.negative_log_likelihood_rows", ("-1 -> 1",),
              "The array has two axes: the last one is axis 1."),
    Explained("ops/losses.gradient_in_rows", ("-1 -> 1",), "The array has two axes: the last one is axis 1."),
)
OF_ROOMS = (
    Explained("gradcheck/line.one_sided", (":6 -> :",),
              "A few more entries to choose the best from: the slope is the same within its bar."),
    Explained("gradcheck/line.refined",
              ("found.error < 0.5 * best.error -> found.error <= 0.5 * best.error",),
              "The seam of a tolerance; what is unknown twice is the same."),
    Explained("gradcheck/complex_step._look_with_differences",
              ("np.zeros(found.wrong.size, dtype=bool) -> np.zeros(found.wrong.size)",),
              "Marks: what is not zero is looked at."),
    Explained("gradcheck/elements.check_ties", ("found.error <= slack -> found.error < slack",),
              "The seam of a tolerance; where it is zero, the slope and the claim are zero too, and that is right."),
    Explained("gradcheck/trees.children",
              ("zip(value._fields, value, strict=True) -> zip(value._fields, value)",),
              "A NamedTuple holds as many values as it has fields."),
    Explained("gradcheck/experiments._near", ("np.abs(a - b) <= slack -> np.abs(a - b) < slack",),
              "The seam of a tolerance that is never zero."),
    Explained("gradcheck/experiments.ignored_places_of_dy", ("0 < len(ignored) < n -> 0 <= len(ignored) < n",),
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
              ("...r line in before)), encoding='utf-8') -> ...r line in before)))",),
              "What JSON is written here holds nothing but ASCII."),
    Explained("training/data", ("2 ** 20 -> 2 * 20 | READ_AT_ONCE = 2 ** 20",),
              "It says how much of a file is read at once."),
    Explained("training/long_texts._header", ("False -> True",),
              "Of a single axis, both orders are one."),
    Explained("training/optimizers.Adam._move", ("np.sqrt(v, out=square) -> np.sqrt(v)",),
              "The same numbers in memory of their own."),
)
EXPLAINED = OF_CHAPTERS + OF_ROOMS


def ways_to_say(mutation: Mutation) -> set[str]:
    """The change alone, with its line, and with its number in the line."""
    line = f"{mutation.change} | {mutation.statement}"
    return {mutation.change, line, f"{line} | {mutation.number}"}


def reason_for(mutation: Mutation) -> str:
    """Why this mutation survives; empty when nobody has said."""
    said = ways_to_say(mutation)
    return next((one.reason for one in EXPLAINED if one.place == mutation.place and said & {*one.changes}), "")
