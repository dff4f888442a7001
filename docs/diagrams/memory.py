"""Diagrams of stored and recomputed values: the KV cache, and attention in tiles."""

from docs.diagrams.pen import Drawing

SUBSCRIPTS = "₀₁₂₃₄"


def kv_cache() -> Drawing:
    """Four steps of generation: the stored and the new keys and values."""
    d = Drawing(
        "kv-cache", "Keys and values, stored step by step",
        "Four steps. Each step computes one query, one key and one value. The query looks at the stored keys of all "
        "earlier steps and at its own key. The stored keys and values have one more column after each step.", 470,
    )
    for x, kind, what in ((16, "step", "new in this step"), (190, "kept", "stored earlier, only read")):
        d.cells(x, 16, 1, 1, 20, lambda i, j, kind=kind: kind)
        d.write(x + 28, 31, what, role="soft")
    for t in range(1, 5):
        y = 62 + 86 * (t - 1)
        d.write(16, y + 19, f"*step {t}*")
        letter = "The "[t - 1]
        d.write(16, y + 49, "reads a space" if letter == " " else f"reads {letter}", role="soft")
        d.cells(112, y, 1, 1, 28, lambda i, j: "step", lambda i, j, t=t: f"q{SUBSCRIPTS[t]}", wide=40)
        grid = d.cells(
            184, y, 2, t, 28, lambda i, j, t=t: "step" if j == t - 1 else "kept",
            lambda i, j: f"{'kv'[i]}{SUBSCRIPTS[j + 1]}", wide=40,
        )
        d.arrow((154, y + 14), (grid.x, y + 14))
        out = d.box(390, y + 27, 44, f"y{SUBSCRIPTS[t]}")
        d.arrow((grid.right, y + 42), (out.x, y + 42))
    d.write(16, 424, "*4 letters*", role="green")
    d.write(100, 424, "are read with the KV cache, one per step")
    d.write(16, 448, "*10 letters*", role="orange")
    d.write(100, 448, "are read without the KV cache: 1 + 2 + 3 + 4")
    return d


def tiles() -> Drawing:
    """T x T scores in tiles: the current tile, skipped tiles, and the stored arrays."""
    n, size, x, y = 6, 40, 84, 92
    now = (4, 2)
    d = Drawing(
        "tiles", "Attention in tiles",
        "A square of six by six tiles. The rows are queries, and the columns are keys. The tiles above the diagonal "
        "are skipped, and one tile is being computed. The strips next to the square are the stored arrays: q, k, v, y "
        "and L. The strip of L is narrow.", 548,
    )
    d.write(x + n * size / 2, 22, "keys and values, tile by tile", "middle", "soft")
    for m, name in enumerate("kv"):
        d.write(x - 12, 44 + 26 * m, f"`{name}`", "end")
        d.cells(x, 30 + 26 * m, 1, n, 22, lambda i, j: "kept", wide=size)
    d.write(59, y + n * size + 18, "`q`", "middle")
    d.cells(46, y, n, 1, size, lambda i, j: "kept", wide=26)

    def kind_of(i: int, j: int) -> str:
        return "gradient" if (i, j) == now else "hidden" if j > i else "step"

    square = d.cells(x, y, n, n, size, kind_of)
    for name, left, wide in (("y", square.right + 12, 34), ("L", square.right + 54, 12)):
        d.cells(left, y, n, 1, size, lambda i, j: "kept", wide=wide)
        d.write(left + wide / 2, y + n * size + 18, f"`{name}`", "middle")
    middle = y + (now[0] + 0.5) * size
    d.arrow((x + 6, middle), (x + now[1] * size, middle))
    d.arrow((x + (now[1] + 1) * size, middle), (x + (now[0] + 1) * size - 5, middle))
    legend = [
        ("kept", "stored: q, k, v, y and L (one number per query)"),
        ("gradient", "current tile of scores, deleted after use"),
        ("step", "other tiles; the backward recomputes each weight"),
        ("hidden", f"skipped: all keys are later than the queries, {n * (n - 1) // 2} of {n * n}"),
    ]
    for m, (kind, what) in enumerate(legend):
        top = y + n * size + 40 + 30 * m + (17 if m == 3 else 0)
        d.cells(16, top, 1, 1, 20, lambda i, j, kind=kind: kind)
        d.write(46, top + 15, what)
        if kind == "step":
            d.write(46, top + 33, "from its score s and the L of its row: exp(s - L)")
    d.arrow((16, 523), (40, 523))
    d.write(46, 528, "updated in each tile: largest score m, total, a")
    return d
