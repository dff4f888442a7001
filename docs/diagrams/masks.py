"""The diagram of masks."""

import numpy as np

import numpy_attention as na
from docs.diagrams.pen import Drawing


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
    d.write(16, y + 124, "rows: queries; columns: keys; striped cells are hidden", role="soft")

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
