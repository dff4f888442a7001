"""Diagrams of attention: a comparison with a recurrence, the backward, masks, heads, and positions."""

from itertools import pairwise

import numpy as np

import numpy_attention as na
from docs.diagrams.pen import Drawing

TUTORIAL_4 = "tutorials/04-scaled-dot-product-attention.md"


def chain_and_pairs() -> Drawing:
    """Five words in a recurrence and in attention, and the path from one word to another in both."""
    d = Drawing(
        "chain-and-pairs", "A chain of states, and all pairs at once",
        "Five words, drawn twice. Top: each state depends on one word and on the previous state; four arrows lead "
        'from the word "cat" to the state of the word "it". Bottom: one arrow leads from every word to every result.',
        408,
    )
    names, xs = ("The", "cat", "slept", "because", "it"), [50 + 80 * n for n in range(5)]
    d.write(16, 24, "*recurrence*")
    d.write(402, 24, "T steps, one after the other", "end", "soft")
    states = [d.box(x, 42, 46, f"`h{n}`", "gradient" if n > 1 else "step") for n, x in enumerate(xs, start=1)]
    words = [d.box(x, 116, 68, name, "gradient" if name == "cat" else "data") for name, x in zip(names, xs)]
    for n, (word, state) in enumerate(zip(words, states)):
        d.arrow((word.cx, word.y), (state.cx, state.bottom), role="orange" if n == 1 else "soft")
    for n, (a, b) in enumerate(pairwise(states)):
        d.arrow((a.right, a.cy), (b.x, b.cy), role="orange" if n else "soft")
    d.write(16, 172, "from cat to it: four arrows, one after another", role="orange")
    d.write(16, 222, "*attention*")
    d.write(402, 222, "T × T pairs, all at once", "end", "soft")
    results = [d.box(x, 240, 46, f"`y{n}`", "gradient" if n == 5 else "step") for n, x in enumerate(xs, start=1)]
    words = [d.box(x, 346, 68, name, "gradient" if name == "cat" else "data") for name, x in zip(names, xs)]
    pairs = sorted(((i, j) for i in range(5) for j in range(5)), key=lambda pair: pair == (1, 4))  # (1, 4) on top
    for i, j in pairs:
        look = "orange" if (i, j) == (1, 4) else "soft"
        d.arrow((words[i].cx, 346), (results[j].cx, results[j].bottom), role=look, head=look == "orange")
    d.write(16, 398, "from cat to it: one arrow, as for every pair", role="orange")
    return d


def backward() -> Drawing:
    """The graph of attention's backward, each arrow with its line of code."""
    d = Drawing(
        "attention-backward", "The backward of attention, an arrow for each line",
        "Arrows lead from dy to dv and to dweights, from dweights to dscores, and from dscores to dq and to dk. Each "
        "arrow has two lines of text. The first is a comment with the line of the forward. The second is the NumPy "
        "line of the gradient.", 594,
    )
    spine, text, leaf = 64, 80, 374
    d.write(20, 24, "*forward*", role="soft")
    row = [("q, k", 54), ("scores", 148), ("weights", 254), ("y", 374)]
    nodes = [d.box(x, 36, {"q, k": 58, "scores": 76, "weights": 84, "y": 60}[name], f"`{name}`") for name, x in row]
    for a, b in pairwise(nodes):
        d.arrow((a.right, a.cy), (b.x, b.cy))
    v = d.box(374, 96, 60, "`v`")
    d.arrow((v.cx, v.y), (nodes[3].cx, nodes[3].bottom))
    d.write(20, 118, "*backward*", role="soft")

    def node(y: float, name: str, shape: str, what: str) -> None:
        box = d.box(spine, y, 88, f"`{name}`", "gradient")
        d.write(box.right + 12, box.cy - 4, f"`{shape}`", role="soft")
        d.write(box.right + 12, box.cy + 13, what, role="soft")

    def backward_of(y: float, line: str, *code: str) -> None:
        d.write(text, y, f"`# {line}`", role="soft")
        for n, one in enumerate(code, start=1):
            d.code(text, y + 17 * n, one, TUTORIAL_4)

    def branch(y: float, name: str) -> None:
        leaf_box = d.box(leaf, y - 15, 60, f"`{name}`", "gradient")
        d.arrow((spine, y), (leaf_box.x, y), role="orange")

    node(132, "dy", "(T_q, d_v)", "given: gradient of the loss at y")
    backward_of(186, "y = weights @ v", "dweights = dy @ v.swapaxes(-1, -2)", "dv = weights.swapaxes(-1, -2) @ dy")
    branch(246, "dv")
    d.arrow((spine, 162), (spine, 272), role="orange")

    node(272, "dweights", "(T_q, T_k)", "gradient of the loss at the weights")
    backward_of(326, "weights = softmax(scores)")
    d.code(text, 343, "average = (dweights * weights).sum(", TUTORIAL_4)
    d.write(text, 360, "`    axis=-1, keepdims=True)`")
    d.code(text, 377, "dscores = weights * (dweights - average)", TUTORIAL_4)
    d.arrow((spine, 302), (spine, 394), role="orange")

    node(394, "dscores", "(T_q, T_k)", "gradient of the loss at the scores")
    backward_of(448, "scores = scale * q @ k^T", "dq = scale * dscores @ k")
    branch(486, "dq")
    d.code(text, 520, "dk = scale * dscores.swapaxes(-1, -2) @ q", TUTORIAL_4)
    last = d.box(spine, 546, 88, "`dk`", "gradient")
    d.arrow((spine, 424), (spine, last.y), role="orange")
    d.write(120, 561, "A product has two gradients: each factor", role="soft")
    d.write(120, 578, "gets the gradient times the other factor.", role="soft")
    return d


def masks() -> Drawing:
    """Two masks and their combination; one row in the forward and in the backward of the softmax."""
    d = Drawing(
        "masks", "Two masks, and one row of the softmax",
        "A causal mask and a padding mask are combined into one mask. Below them is the row of one query: scores, "
        "masked scores with minus infinity, weights and gradients. Hidden keys have weight zero and gradient zero.",
        420,
    )
    causal, padding = na.causal_mask(6), na.padding_mask(np.array([4]), T=6)[0, 0]
    both = causal & padding
    size, y = 17, 52
    for x, name, mask in ((16, "causal", causal), (159, "padding", np.broadcast_to(padding, (6, 6))),
                          (302, "mask", both)):
        d.write(x + 51, y - 12, f"`{name}`", "middle")
        d.cells(x, y, 6, 6, size, lambda i, j, m=mask: "step" if m[i, j] else "hidden")
    d.write(138.5, y + 56, "`&`", "middle")
    d.write(281.5, y + 56, "`=`", "middle")
    d.write(16, y + 124, "rows: queries; columns: keys; crossed cells are hidden", role="soft")

    scores = np.array([1.2, 0.3, 0.8, -0.5, 0.1, 0.9])
    weights, cache = na.softmax(np.where(both[1], scores, -np.inf))
    dweights = np.array([0.4, -1.0, 0.7, 0.2, -0.3, 0.5])
    dscores = na.softmax_backward(dweights, cache)
    rows = [
        ("scores", scores, "of the second query"),
        ("masked", np.where(both[1], scores, -np.inf), "-inf where the mask is False"),
        ("weights", weights, "softmax: exp(-inf) = 0; the row still sums to 1"),
        ("dscores", dscores, "where hidden: 0 * (dweights - average) = 0"),
    ]
    for n, (name, numbers, what) in enumerate(rows):
        top = 200 + 55 * n
        d.write(16, top + 15, f"`{name}`")
        seen = "gradient" if name == "dscores" else "step"
        unseen = {"scores": "step", "masked": "hidden"}.get(name, "quiet")
        digits = 1 if n < 2 else 2
        d.cells(88, top, 1, 6, 22, lambda i, j, yes=seen, no=unseen: yes if both[1, j] else no,
                lambda i, j, v=numbers, k=digits: "" if np.isneginf(v[j]) else f"{v[j] + 0.0:.{k}f}", wide=52)
        d.write(88, top + 39, what, role="soft")
    return d


def many_heads() -> Drawing:
    """Multi-head attention from x to y, with every shape."""
    d = Drawing(
        "multi-head-attention", "Multi-head attention, shape by shape",
        "x is multiplied by w_q, w_k and w_v; this gives q, k and v, which are split into H heads. q and k give the "
        "scores (B, H, T, T). The softmax of the scores gives the weights, and each head computes weights times v. The "
        "results of the heads are joined to (B, T, H d_k) and multiplied by w_o, which gives y (B, T, d_model).",
        720,
    )
    columns = {"q": 76, "k": 210, "v": 344}
    x = d.box(210, 14, 150, "`x`\n`(B, T, d_model)`")
    for name, cx in columns.items():
        w = d.box(cx, 92, 122, f"`@ w_{name}`\n`(B, T, H d_k)`", "weights")
        start = {"q": x.x + 20, "k": x.cx, "v": x.right - 20}[name]
        d.arrow((start, x.bottom), *([] if name == "k" else [(start, 74), (cx, 74)]), (cx, w.y))
        split = d.box(cx, 165, 122, "`split_heads`", "step")
        d.arrow((cx, w.bottom), (cx, split.y))
        head = d.box(cx, 221, 122, f"`{name}`\n`(B, H, T, d_k)`")
        d.arrow((cx, split.bottom), (cx, head.y))
    scores = d.box(143, 294, 190, "`q @ k^T * scale`\n`scores (B, H, T, T)`", "step")
    d.arrow((76, 268), (76, scores.y))
    d.arrow((210, 268), (210, scores.y))
    softmax = d.box(143, 367, 190, "mask, then softmax\n`weights (B, H, T, T)`", "step")
    d.arrow((143, scores.bottom), (143, softmax.y))
    mixed = d.box(210, 440, 324, "`weights @ v`\n`(B, H, T, d_k)`", "step")
    d.arrow((143, softmax.bottom), (143, mixed.y))
    d.arrow((344, 268), (344, mixed.y))
    d.write(332, 340, "v is\nnot used\nfor the\nscores", "end", "soft")
    joined = d.box(210, 513, 150, "`concat_heads`\n`(B, T, H d_k)`", "step")
    d.arrow((210, mixed.bottom), (210, joined.y))
    w_o = d.box(210, 586, 150, "`@ w_o`", "weights")
    d.arrow((210, joined.bottom), (210, w_o.y))
    y = d.box(210, 642, 150, "`y`\n`(B, T, d_model)`")
    d.arrow((210, w_o.bottom), (210, y.y))
    d.write(210, 708, "Each head attends separately; only w_o combines them.", "middle", "soft")
    return d


def positions() -> Drawing:
    """The path from tokens to y in one block, and the place where each kind of positions is used."""
    d = Drawing(
        "positions", "Where positions enter a model",
        "The way from the embeddings to y. A sinusoidal or learned table is added to the embeddings, once. Rotary "
        "positions rotate q and k in every block. ALiBi lowers the scores in every block. Rotary positions and ALiBi "
        "do not change v.", 560,
    )
    tokens = d.box(118, 14, 180, "embeddings\n`(B, T, d_model)`")
    added = d.plus(118, 104)
    d.arrow((118, tokens.bottom), (118, added.y))
    table = d.box(325, 80.5, 162, "*sinusoidal, learned*\na table, added once", "kept")
    d.arrow((table.x, 104), (added.right, 104))
    d.box(210, 150, 404, kind="frame", h=366)
    d.write(402, 170, "in every block", "end", "soft")
    columns = {"v": 48, "q": 118, "k": 188}
    for name, cx in columns.items():
        w = d.box(cx, 194, 62, f"`@ w_{name}`", "weights")
        d.arrow(*([(cx, added.bottom)] if name == "q" else [(118, 168), (118, 176), (cx, 176)]), (cx, w.y))
    turn = d.box(153, 254, 130, "rotate", "step")
    rotary = d.box(325, 237, 162, "*rotary*\nposition t rotates pair i\nby the angle t f_i", "kept")
    d.arrow((rotary.x, turn.cy), (turn.right, turn.cy))
    scores = d.box(153, 314, 130, "`scale * q @ k^T`", "step")
    for name in ("q", "k"):
        d.arrow((columns[name], 224), (columns[name], turn.y))
        d.arrow((columns[name], turn.bottom), (columns[name], scores.y))
    lowered = d.plus(153, 380)
    d.arrow((153, scores.bottom), (153, lowered.y))
    alibi = d.box(325, 348, 162, "*ALiBi*\nsubtract the distance\ntimes the head's slope", "kept")
    d.arrow((alibi.x, 380), (lowered.right, 380))
    softmax = d.box(153, 412, 130, "`softmax`", "step")
    d.arrow((153, lowered.bottom), (153, softmax.y))
    mixed = d.box(118, 466, 202, "`weights @ v`", "step")
    d.arrow((153, softmax.bottom), (153, mixed.y))
    d.arrow((48, 224), (48, mixed.y))
    d.arrow((118, mixed.bottom), (118, 538))
    d.write(130, 540, "y", role="soft")
    d.write(402, 540, "rotary and ALiBi do not change v", "end", "soft")
    return d


def since_2023() -> Drawing:
    """The steps of attention, and beside each arrow the additions of newer models that act there."""
    d = Drawing(
        "since-2023", "Where newer models change attention",
        "The steps of attention from top to bottom: x; q, k and v; scores; weights; o; y. Latent attention computes "
        "k and v from a short vector. QK-norm and rotary positions act on q and k. The softcap and the windows act on "
        "the scores, the sink on the weights, and the gate on o.", 412,
    )
    names = "x", "q, k, v", "scores", "weights", "o", "y"
    steps = [d.box(66, 12 + 72 * n, 96, f"`{name}`", "step") for n, name in enumerate(names)]
    for a, b in pairwise(steps):
        d.arrow((a.cx, a.bottom), (b.cx, b.y))
    additions = (
        (0, "*latent attention*\nk and v from a short vector"), (1, "*QK-norm, rotary*\nscaled, on a part, or none"),
        (2, "*softcap, window, sink*\nbounded, local, or nowhere"), (4, "*output gate*\nhow much of each head"),
    )
    for n, text in additions:
        between = (steps[n].bottom + steps[n + 1].y) / 2
        box = d.box(282, between - 23.5, 230, text, "kept")
        d.arrow((box.x, between), (steps[n].cx, between))
    return d
