"""Diagrams of Part VI: how two heads continue a repeated sequence, and where a model can be edited."""

from docs.diagrams.pen import Drawing


def induction() -> Drawing:
    """The three steps of induction, over a row of symbols."""
    d = Drawing(
        "induction", "Induction by two heads",
        "A row of symbols: a, b, c, and later a again. Step 1: at b, a head of block 0 looks one symbol back and "
        "stores the note 'after an a'. Step 2: at the later a, a head of block 1 looks for this note, and finds it at "
        "b. Step 3: the model predicts b.", 300,
    )
    symbols, wide, left, row = ("…", "a", "b", "c", "…", "a", "b"), 56, 14, 84
    d.cells(left, row, 1, 7, 30, lambda i, j: "gradient" if j == 6 else "data", lambda i, j: symbols[j], wide=wide)
    a, b, again, predicted = (left + (j + 0.5) * wide for j in (1, 2, 5, 6))
    d.arrow((b - 8, row), (b - 8, 58), (a, 58), (a, row), role="blue")
    d.write((a + b) / 2 - 4, 52, "*1*", "middle", "blue")
    note = d.box(b, row + 48, 92, "after an a", "kept")
    d.arrow((b, row + 30), (b, note.y))
    d.arrow((again, row + 30), (again, note.bottom + 26), (b, note.bottom + 26), (b, note.bottom), role="orange")
    d.write((b + again) / 2, note.bottom + 20, "*2*", "middle", "orange")
    d.arrow((b + 10, row), (b + 10, 30), (predicted, 30), (predicted, row), role="green")
    d.write((b + predicted) / 2, 24, "*3*", "middle", "green")
    d.write(16, 224, "*1*", role="blue")
    d.write(34, 224, "block 0, at b: read the previous token, store a note")
    d.write(16, 246, "*2*", role="orange")
    d.write(34, 246, "block 1, at the later a: look for the note \"after an a\"")
    d.write(16, 268, "*3*", role="green")
    d.write(34, 268, "predict the token at the place of this note")
    return d


def places() -> Drawing:
    """One block, with the places where values can be read and changed."""
    d = Drawing(
        "places", "Where a block can be edited",
        "One block, from top to bottom, with three places: on the residual stream before the block, between the heads "
        "and w_o, and after the feed-forward network. The next place on the stream belongs to the next block, or to "
        "the last norm.", 566,
    )
    stream, branch = 82, 262

    top = d.box(stream, 14, 132, "`blocks.0`", "gradient")
    norm_1 = d.box(branch, 62, 104, "`norm_1`", "quiet")
    heads = d.box(branch, 112, 150, "heads: q, k, v,\nweights", "step")
    o = d.box(branch, 179, 180, "`blocks.0.attention`", "gradient")
    w_o = d.box(branch, 229, 104, "`w_o`", "weights")
    plus_1 = d.plus(stream, 282)
    norm_2 = d.box(branch, 318, 104, "`norm_2`", "quiet")
    network = d.box(branch, 368, 150, "feed-forward", "step")
    out = d.box(branch, 418, 204, "`blocks.0.feed_forward`", "gradient")
    plus_2 = d.plus(stream, 472)
    after = d.box(stream, 504, 132, "`blocks.1`", "gradient")
    d.arrow((stream, top.bottom), (stream, plus_1.y))
    d.arrow((stream, 53), (branch, 53), (branch, norm_1.y))
    for above, below in ((norm_1, heads), (heads, o), (o, w_o), (norm_2, network), (network, out)):
        d.arrow((branch, above.bottom), (branch, below.y))
    d.arrow((branch, w_o.bottom), (branch, plus_1.cy), (plus_1.right, plus_1.cy))
    d.arrow((stream, plus_1.bottom), (stream, plus_2.y))
    d.arrow((stream, 303), (branch, 303), (branch, norm_2.y))
    d.arrow((branch, out.bottom), (branch, plus_2.cy), (plus_2.right, plus_2.cy))
    d.arrow((stream, plus_2.bottom), (stream, after.y))
    d.write(162, 526, "after the last block: norm", role="soft")
    d.write(16, 556, "orange: a place where values can be read and edited", role="soft")
    return d
