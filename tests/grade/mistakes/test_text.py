"""Mistakes in byte pairs and in top-p, in the form in which a student writes them."""

import pytest

from tests.grade.hand_in import UNWRITTEN, tutor_text

TOP_P = """y = np.exp(logits - logits.max(axis=-1, keepdims=True))
    y = y / y.sum(axis=-1, keepdims=True)
    order = np.argsort({by}, axis=-1)
    ranked = np.take_along_axis(y, order, axis=-1)
    kept = np.where({keep}, ranked, 0)
    back = np.zeros_like(y)
    np.put_along_axis(back, order, kept, axis=-1)
    return {last}"""
BEFORE = "np.cumsum(ranked, axis=-1) - ranked < p"


def top_p(by: str = "-y", keep: str = BEFORE, last: str = "back / back.sum(axis=-1, keepdims=True)") -> str:
    return TOP_P.format(by=by, keep=keep, last=last)


REPLAY = """for i, (a, b) in {}:
        out, j = [], 0
        while j < len(ids):
            pair = ids[j:j + 2] == [a, b]
            out.append({} + i if pair else ids[j])
            j += 2 if pair else 1
        ids = out
    return ids"""


@pytest.mark.parametrize(("name", "exercise", "answers"), [
    ("one_too_few", "top_p", (top_p(keep="np.cumsum(ranked, axis=-1) <= p"), UNWRITTEN)),
    ("not_normalized_again", "top_p", (top_p(last="back"), UNWRITTEN)),
    ("left_in_order_of_rank", "top_p", (top_p(last="kept / kept.sum(axis=-1, keepdims=True)"), UNWRITTEN)),
    ("unlikeliest_kept", "top_p", (top_p(by="y"), UNWRITTEN)),
    ("zero_drawn", "top_p", (UNWRITTEN, "return int(np.searchsorted(np.cumsum(probabilities), u))")),
    ("counted_once", "byte_pairs", (
        """counts = Counter(pairwise(ids))
    best = sorted(counts, key=lambda pair: (-counts[pair], pair))
    return [pair for pair in best if counts[pair] >= 2][:num_merges]""", UNWRITTEN)),
    ("merges_from_the_last", "byte_pairs", (
        UNWRITTEN, REPLAY.format("reversed(list(enumerate(merges)))", 256))),
    ("ids_from_255", "byte_pairs", (UNWRITTEN, REPLAY.format("enumerate(merges)", 255))),
])
def test_mistake_is_named(name: str, exercise: str, answers: tuple[str, ...]) -> None:
    output = tutor_text(exercise, *answers)
    assert f"a known mistake, `{name}`" in output, output
    assert "not written yet" in output, "the other function is checked separately"
