"""Mutations that change the source but no result, each with the reason. No test can notice them.

A change is written `before -> after`, as `python -m tests.mutations` prints it. If the same change is possible in other
lines of the function, ` | ` and the line follow; if it is possible more than once in the line, ` | ` and its number
follow. A test fails if a surviving mutation is not in this file.
"""

from typing import NamedTuple

from tests.mutations.changes import Mutation


class Explained(NamedTuple):
    """Changes of one function that survive for the same reason."""

    place: str  # package/file.function
    changes: tuple[str, ...]
    reason: str


DRAWN = "np.random.Generator(philox).random(s.shape[1:], dtype=np.float32)"
FIRST = "first_of_run = np.flatnonzero(np.diff(sorted_ids, prepend=sorted_ids[:1] - 1))"
BETWEEN = "between = 2.0 ** (-8.0 * np.arange(1, 2 * lower, 2) / (2 * lower))"
SHARED = "if x.shape[:-2] == k.shape[:-2]:"
ALL_COLUMNS = "(len(prompts), T + num_tokens), dtype=np.int64"

TOKENS = "return y, LinearAttentionCache(inputs, tuple(states), S[..., 0, :, :], scale, chunk_size=1)"
ONE_SHARE = "if shares.shape[-1] == 1:"
NEXT_ROW = "X[..., i : i + 1, :i] = -L[..., i : i + 1, :i] @ X[..., :i, :i]"

OF_CHAPTERS = (
    Explained("ops/embedding.add_at", ("not on_host(ids) -> on_host(ids)",),
              "Both ways give the same sum: sorting and adding up runs on the host, np.add.at on a GPU."),
    Explained("ops/embedding.add_at", ("sorted_ids[:1] - 1 -> sorted_ids[:1] + 1", f"1 -> 2 | {FIRST} | 2"),
              "Any number except the first id marks the start of the first run."),
    Explained("ops/embedding.add_at",
              ("dy.size >= LONG_RUN * len(first_of_run) -> dy.size > LONG_RUN * len(first_of_run)",
               "LONG_RUN * len(first_of_run) -> LONG_RUN / len(first_of_run)",
               "LONG_RUN * len(first_of_run) -> LONG_RUN", "LONG_RUN * len(first_of_run) -> len(first_of_run)"),
              "Both ways give the same sum: run by run, or all runs at once."),
    Explained("ops/positions.rotary_frequencies", ("0.001 -> 0.002",),
              "If both limits are the same whole number, k falls from 1 to 0 at the next pair, as with 0.001."),
    Explained("ops/positions.alibi_slopes", (f"2 -> 4 | {BETWEEN} | 1",),
              "The change computes more slopes than needed; the slice after it removes them."),
    Explained("ops/attention.fold_heads", (f"2 -> 4 | {SHARED}", f"-2 -> 2 | {SHARED}"),
              "Without this shortcut for heads that share no keys, the reshape does not change the array."),
    Explained("ops/tiles.apply_band",
              ("nearest + last_ahead + 1 -> nearest + last_ahead - 1",
               "nearest + last_ahead + 1 -> nearest + last_ahead",
               "nearest + last_ahead -> nearest - last_ahead", "nearest + last_ahead -> nearest",
               "first < columns.stop -> first <= columns.stop", "rows.start + self.offset -> self.offset"),
              "Also compares earlier keys, which are not hidden: only the time changes."),
    Explained("ops/tiles.apply_band",
              ("rows.stop - 1 -> rows.stop + 1", "rows.stop - 1 -> rows.stop", "farthest - window -> farthest + window",
               "farthest - window -> farthest", "columns.start < end -> columns.start <= end",
               "1 -> 2 | end = min(columns.stop, farthest - window + 1)"),
              "Also compares later keys, which are not hidden: only the time changes."),
    Explained("ops/tiles.__init__",
              ("(1,) * (q.ndim - mask.ndim) + mask.shape -> mask.shape",),
              "Broadcasting adds the missing leading axes by itself."),
    Explained("ops/tiles.factors", ("0 -> 1",), "The initial value may be any number that is the same for all tiles."),
    Explained("ops/tiles.factors",
              (f"{DRAWN} >= self.rate -> {DRAWN} > self.rate",),
              "They differ when a random number equals the rate: once in sixteen million draws."),
    Explained("ops/activations.relu", ("x > 0.0 -> x >= 0.0",),
              "At the corner no derivative exists; the slope of either side is right."),
    Explained("ops/activations.gelu", ("100.0 -> 200.0",),
              "The bounds keep squares finite; at much smaller numbers the weight is already 0 or 1."),
    Explained("ops/erf._by_tanh", ("6.0 -> 12.0",),
              "The bound keeps high powers finite; on both sides of it tanh is 1 to the last digit."),
    Explained("ops/erf._by_cody",
              ("0.46875 -> 0.9375 | near = np.minimum(size, 0.46875)",
               "4.0 -> 8.0 | middle = np.clip(size, 0.46875, 4.0)", "10.0 -> 20.0"),
              "These bounds keep an approximation finite where it is not used; from 10 on erf is exactly 1."),
    Explained("ops/erf._by_cody", ("size <= 0.46875 -> size < 0.46875", "size <= 4.0 -> size < 4.0"),
              "At the boundary both approximations agree to the last digit."),
    Explained("ops/erf._by_cody", ("x < 0.0 -> x <= 0.0",), "At zero the result is zero for both signs."),
    Explained("ops/dropout.dropout", ("0.0 -> 1.0",),
              "Rate 0 is a shortcut: the general code keeps everything and multiplies by one."),
    Explained("ops/dropout.dropout", ("1.0 -> 2.0 | return x, DropoutCache(None, 1.0, x.shape, x.dtype)",),
              "The scale of a cache without a mask is never read."),
    Explained("ops/dropout.dropout",
              ("rng.random(x.shape, dtype=np.float32) >= rate -> rng.random(x.shape, dtype=np.float32) > rate",),
              "They differ when a random number equals the rate: once in sixteen million draws."),
    Explained("ops/losses.counted_positions", ("0 -> 1",), "An ignored position may hold any token."),
    Explained("ops/losses.negative_log_likelihood_rows", ("-1 -> 1",),
              "The array has two axes, so the last axis is axis 1."),
    Explained("ops/losses.gradient_in_rows", ("-1 -> 1",), "The array has two axes, so the last axis is axis 1."),
    Explained("ops/losses.negative_log_likelihood", ("-1 -> 1",),
              "The array has two axes, so the last axis is axis 1."),
    Explained("ops/losses.reduced", ("0.0 -> 1.0",), "An ignored loss may be any finite number: its weight is 0."),
    *(Explained(f"recent/chunks.{function}", (f"1 -> 2 | {ONE_SHARE} | 1", f"1 -> 2 | {ONE_SHARE} | 2"),
                "A faster way for one share; np.einsum repeats the axis of length 1 and gives the same numbers.")
      for function in ("_scores", "_scores_backward")),
    Explained("recent/chunks._inverse", ("1 -> 2 | for i in range(L.shape[-1]):",), "The matrix is square."),
    Explained("recent/chunks._inverse", (f"1 -> 2 | {NEXT_ROW} | 1",), "The next step writes the next row again."),
    Explained("recent/recurrence.linear_attention", (f"1 -> 2 | {TOKENS} | 1",),
              "Only the backward of Chapter 43 reads the chunk size."),
)
OF_PACKAGES = (
    Explained("gradcheck/line.one_sided", (":6 -> :",),
              "A few more entries to choose from: the slope is the same within its error bar."),
    Explained("gradcheck/line.refined",
              ("found.error < 0.5 * best.error -> found.error <= 0.5 * best.error",),
              "Equality at the limit of a tolerance: both estimates are unknown."),
    Explained("gradcheck/complex_step._look_with_differences",
              ("np.zeros(found.wrong.size, dtype=bool) -> np.zeros(found.wrong.size)",),
              "These numbers are marks; every element that is not zero is checked."),
    Explained("gradcheck/elements.check_ties", ("found.error <= slack -> found.error < slack",),
              "Equality at the limit of a tolerance; if the tolerance is zero, both slopes are zero, which is right."),
    Explained("gradcheck/trees.children",
              ("zip(value._fields, value, strict=True) -> zip(value._fields, value)",),
              "A NamedTuple always has as many values as fields."),
    Explained("gradcheck/simpler.near", ("np.abs(a - b) <= slack -> np.abs(a - b) < slack",),
              "Equality at the limit of a tolerance that is never zero."),
    Explained("gradcheck/experiments.ignored_places_of_dy", ("0 < len(ignored) < n -> 0 <= len(ignored) < n",),
              "An empty part of dy changes nothing; it costs two calls."),
    Explained("layers/feed_forward.FeedForward.backward",
              ("gated is None or self.w_gate is None -> gated is None and self.w_gate is None",),
              "Both are None or neither; the type checker needs both tests."),
    Explained("layers/kv_cache.KeyValueCache.append",
              ("self.k is None or self.v is None -> self.k is None and self.v is None",),
              "Both are None or neither; the type checker needs both tests."),
    Explained("layers/kv_cache.KeyValueCache.append", ("-2 -> 2",),
              "Keys have four axes, so axis -2 is axis 2."),
    Explained("layers/kv_cache.KeyValueCache.filled",
              ("self.k is None or self.v is None -> self.k is None and self.v is None",),
              "Both are None or neither; the type checker needs both tests."),
    Explained("models/generate.generate",
              (f"np.zeros({ALL_COLUMNS}) -> np.ones({ALL_COLUMNS})",),
              "Padding before a shorter prompt is hidden; places after the prompt are written before they are read."),
    Explained("models/sampling.sample", ("-1 -> 1",), "The logits have two axes, so the last axis is axis 1."),
    Explained("models/search.greedy_search",
              ("np.full((B, 1 + max_tokens), stop_token, dtype=np.int64) -> np.full((B, 1 + max_tokens), stop_token)",),
              "NumPy converts Python integers to int64 by itself."),
    Explained("models/seq2seq.Seq2Seq._decoder_states",
              ("max(T, context.shape[1]) -> min(T, context.shape[1])",),
              "Both ways give the same result: in tiles, or with all weights at once."),
    Explained("models/stack.Parts.gradients",
              ("norm is not None and cache.norm is not None -> cache.norm is not None",),
              "Both are None or neither; the type checker needs both tests."),
    Explained("pretrained/safetensors_files._add_changes",
              ("np.zeros((), w.dtype) -> np.ones((), w.dtype)",),
              "Only its dtype and its broadcast shape are used, not its values."),
    Explained("runs/config._nearest", (":80 -> :",),
              "A word of this length is close to no name, with or without its end."),
    Explained("runs/log.Log.__init__",
              ("...r line in before)), encoding='utf-8') -> ...r line in before)))",),
              "The JSON that is written here contains only ASCII."),
    Explained("training/data", ("2 ** 20 -> 2 * 20 | READ_AT_ONCE = 2 ** 20",),
              "This number is only the amount of the file that is read at once."),
    Explained("training/long_texts._header", ("False -> True",),
              "For a single axis both memory orders are equal."),
    Explained("training/optimizers.Adam._move", ("np.sqrt(v, out=square) -> np.sqrt(v)",),
              "The numbers are the same, only in new memory."),
)
EXPLAINED = OF_CHAPTERS + OF_PACKAGES


def descriptions(mutation: Mutation) -> set[str]:
    """The change, the change with its line, and the change with line and number."""
    line = f"{mutation.change} | {mutation.statement}"
    return {mutation.change, line, f"{line} | {mutation.number}"}


def reason_for(mutation: Mutation) -> str:
    """The reason why this mutation survives; empty if there is none."""
    said = descriptions(mutation)
    return next((one.reason for one in EXPLAINED if one.place == mutation.place and said & {*one.changes}), "")
