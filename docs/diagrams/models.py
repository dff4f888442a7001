"""Diagrams of the norm, the block, GPT, and the encoder-decoder."""

from itertools import pairwise

import numpy as np

import numpy_attention as na
from docs.diagrams.pen import Drawing, width_of

TUTORIAL_8 = "tutorials/08-layer-norm-and-feed-forward.md"


def layer_norm() -> Drawing:
    """The three paths from one number of a vector to the normalized numbers."""
    d = Drawing(
        "layer-norm", "Three paths through layer norm",
        "Three paths lead from one number x_j of a row to the normalized row. The first path leads directly to "
        "x_hat_j, the second path leads through the mean to all positions, and the third path leads through r to all "
        "positions. The three terms of dx are below the paths.", 464,
    )
    d.write(16, 48, "`x`")
    d.cells(62, 30, 1, 6, 28, lambda i, j: "gradient" if j == 0 else "data",
            lambda i, j: "x_j" if j == 0 else "", wide=56)
    ways = [
        (90, 92, "*1. directly*\nr\nif i = j"), (203, 122, "*2. via mean*\n-r / d\nfor every i"),
        (340, 140, "*3. through r*\n-r x_hat_i x_hat_j / d\nfor every i"),
    ]
    boxes = [d.box(cx, 112, w, text, "step") for cx, w, text in ways]
    for box in boxes:
        d.arrow(*([(90, 58)] if box is boxes[0] else [(90, 78), (90, 86), (box.cx, 86)]), (box.cx, box.y))
    row = 262
    d.write(16, row + 18, "`x_hat`")
    d.cells(62, row, 1, 6, 28, lambda i, j: "gradient" if j == 0 else "quiet",
            lambda i, j: "x_hat_j" if j == 0 else "", wide=56)
    d.arrow((90, boxes[0].bottom), (90, row))
    for j in range(6):
        x = 62 + 56 * j + (14 if j == 0 else 28)
        d.arrow((x, 222), (x, row))
    for box in boxes[1:]:
        d.arrow((box.cx, box.bottom), (box.cx, 222), head=False)
    d.arrow((76, 222), (370, 222), head=False)
    d.write(16, 330, "In the backward, each path gives one term:", role="soft")
    d.code(66, 362, "dx = r * (dx_hat - mean - x_hat * along)", TUTORIAL_8)
    for number, column in ((1, 13), (2, 21), (3, 32.5)):
        x = 66 + column * width_of("x", mono=True)
        d.arrow((x, 384), (x, 368), role="blue")
        d.write(x, 400, f"*{number}*", "middle")
    d.write(16, 432, "mean: the row's mean of dx_hat\nalong: the row's mean of dx_hat * x_hat", role="soft")
    return d


def block() -> Drawing:
    """Pre-LN and post-LN side by side, with the path of the gradient."""
    d = Drawing(
        "block", "The two transformer blocks",
        "Two blocks, each with x at the top and y at the bottom. In pre-LN the norms are on the branches, and the "
        "gradient goes up the residual stream without a change. In post-LN the gradient goes through a norm after "
        "every sublayer.", 566,
    )
    for left, name, pre in ((4, "pre-LN, since GPT-2", True), (214, "post-LN, 2017", False)):
        stream, branch, back = left + 46, left + 136, left + 32
        d.write(left + 101, 24, f"*{name}*", "middle")
        x = d.box(stream, 38, 52, "`x`")
        top, stops = x.bottom, []
        for n, sublayer in enumerate(("attention", "feed-forward"), 1):
            fork = top + 22
            if pre:
                norm = d.box(branch, fork + 18, 116, f"`norm_{n}`", "quiet")
                inner = d.box(branch, norm.bottom + 20, 116, sublayer, "step")
                d.arrow((branch, norm.bottom), (branch, inner.y))
                first, join = norm, inner.bottom + 34
            else:
                first = inner = d.box(branch, fork + 18, 116, sublayer, "step")
                join = inner.bottom + 34
            plus = d.plus(stream, join)
            d.arrow((stream, fork), (branch, fork), (branch, first.y))
            d.arrow((branch, inner.bottom), (branch, join), (plus.right, join))
            d.arrow((stream, top), (stream, plus.y))
            top = plus.bottom
            if not pre:
                norm = d.box(stream, top + 20, 70, f"`norm_{n}`", "quiet")
                d.arrow((stream, top), (stream, norm.y))
                stops.append(norm)
                top = norm.bottom
        y = d.box(stream, 454, 52, "`y`")
        d.arrow((stream, top), (stream, y.y))
        below = y.y
        for norm in reversed(stops):
            d.arrow((back, below), (back, norm.bottom), role="orange", dashed=True)
            below = norm.y
        d.arrow((back, below), (back, x.bottom), role="orange", dashed=True)
        caption = ("the residual stream does not\nchange the gradient;\neach branch adds its part" if pre else
                   "a norm after each sublayer\nchanges the gradient\non the residual stream")
        d.write(left + 101, 516, caption, "middle", "orange")
    return d


def gpt() -> Drawing:
    """GPT from ids to the loss, and the table that is used twice."""
    d = Drawing(
        "gpt", "A character GPT, from letters to the loss",
        "Each letter selects its row of a table. The rows go through the blocks and a last norm. The product with the "
        "same table gives the logits. The loss compares the logits with the text shifted by one letter. Each use of "
        "the table gives a gradient of the table, and the two gradients are added.", 590,
    )
    text, flow, side = "The value", 138, 345

    def letters(y: float, name: str, start: int, kind: str) -> None:
        d.write(flow, y - 8, name, "middle", "soft")
        d.cells(flow - 75, y, 1, 5, 28, lambda i, j: kind,
                lambda i, j: text[start + j].replace(" ", "·"), wide=30)

    letters(32, "ids (B, T)", 0, "data")
    look_up = d.box(flow, 86, 190, "look up the rows\n`(B, T, d_model)`", "step")
    d.arrow((flow, 60), (flow, look_up.y))
    table = d.box(side, 82, 134, "`token_embedding`\n`(V, d_model)`", "weights", h=55)
    d.arrow((table.x, look_up.cy - 8), (look_up.right, look_up.cy - 8))
    d.arrow((look_up.right, look_up.cy + 10), (table.x, look_up.cy + 10), role="orange", dashed=True)
    d.box(flow, 160, 222, kind="frame", h=154)
    d.write(flow + 12, 180, "L blocks", role="soft")
    attend = d.box(flow, 196, 190, "masked self-attention", "step")
    think = d.box(flow, 254, 190, "feed-forward", "step")
    d.arrow((flow, look_up.bottom), (flow, attend.y))
    d.arrow((flow, attend.bottom), (flow, think.y))
    norm = d.box(flow, 338, 190, "norm", "quiet")
    d.arrow((flow, think.bottom), (flow, norm.y))
    head = d.box(flow, 394, 190, "`@ table^T`\n`logits (B, T, V)`", "step")
    d.arrow((flow, norm.bottom), (flow, head.y))
    d.arrow((side - 14, table.bottom), (side - 14, head.cy - 8), (head.right, head.cy - 8))
    back = ((head.right, head.cy + 10), (side + 14, head.cy + 10), (side + 14, table.bottom))
    d.arrow(*back, role="orange", dashed=True)
    loss = d.box(flow, 470, 190, "cross-entropy", "step")
    d.arrow((flow, head.bottom), (flow, loss.y))
    letters(546, "targets: the text, shifted by one", 1, "data")
    d.arrow((flow, 524), (flow, loss.bottom))
    d.write(262, 482, "dashed: two gradients\nof the table,\nwhich are added", role="orange")
    return d


def encoder_decoder() -> Drawing:
    """The encoder-decoder with its three attentions, and the mask of each."""
    d = Drawing(
        "encoder-decoder", "The encoder-decoder and its three attentions",
        "Left: the encoder with self-attention. Right: the decoder with masked self-attention and cross-attention; "
        "the keys and values of cross-attention come from the context. Below: the mask of each attention.", 674,
    )
    left, right = 102, 312
    source = d.box(left, 14, 150, "`source_ids`\n`(B, T_s)`")
    target = d.box(right, 14, 170, "`target_ids`\n`(B, T)`")
    d.box(left, 96, 184, kind="frame", h=152)
    d.box(right, 96, 200, kind="frame", h=262)
    d.write(left - 84, 114, "encoder", role="soft")
    d.write(right - 92, 114, "decoder", role="soft")
    one = d.box(left, 126, 150, "1 self-attention", "step", h=36)
    think = d.box(left, 194, 150, "feed-forward", "step", h=36)
    context = d.box(left, 278, 150, "`context`\n`(B, T_s, d_model)`", "kept")
    two = d.box(right, 126, 170, "2 masked self-attention", "step", h=36)
    three = d.box(right, 216, 170, "3 cross-attention", "step", h=36)
    feed = d.box(right, 302, 170, "feed-forward", "step", h=36)
    logits = d.box(right, 384, 170, "`head`\n`logits (B, T, V)`", "weights")
    for column in ((source, one, think, context), (target, two, three, feed, logits)):
        for a, b in pairwise(column):
            d.arrow((a.cx, a.bottom), (b.cx, b.y))
    d.arrow((context.right, context.cy), (206, context.cy), (206, three.cy), (three.x, three.cy))
    d.write(right + 10, 196, "queries", role="soft")
    d.write(left, 350, "its keys and values\ngo to every block", "middle", "soft")
    d.write(left, 396, "each block sends\ntwo gradients back", "middle", "orange")
    d.write(left + 10, 84, "embedded", role="soft")
    d.write(right + 10, 84, "embedded", role="soft")
    size = 16
    see = na.padding_mask(np.array([4]), T=6)[0, 0, 0]
    own = na.causal_mask(5) & na.padding_mask(np.array([4]), T=5)[0, 0]
    grids = [
        (16, "1 encoder", np.broadcast_to(see, (6, 6)), "source", "source"),
        (166, "2 decoder, self", own, "target", "target"),
        (300, "3 cross", np.broadcast_to(see, (5, 6)), "target", "source"),
    ]
    for x, name, mask, rows, columns in grids:
        d.write(x, 468, f"*{name}*")
        d.write(x, 487, f"rows: {rows}\ncolumns: {columns}", role="soft")
        d.cells(x, 514, *mask.shape, size, lambda i, j, m=mask: "step" if m[i, j] else "hidden")
    d.write(16, 640, "Crossed: hidden. Padding keys are hidden, and in the", role="soft")
    d.write(16, 657, "decoder's self-attention all later keys are also hidden.", role="soft")
    return d
