"""The tables and the picture of docs/scaling.md, from the measurements of bench_scaling.py."""

from numpy_attention.app.plots.style import COLOURS
from tests.benchmarks.bench_scaling import (
    CASES,
    NETWORKS,
    PAGE,
    PICTURE,
    RANKS,
    allreduce,
    constants,
    link,
    predict,
    predict_threads,
)
from tests.generated import with_block


def tables(found):
    """The blocks of the page, by the names of the markers around them."""
    return {"constants": constants_table(found), "measured": measured_table(found), "predicted": predicted_table(found),
            "overlap": overlap_table(found)}  # fmt: skip


def constants_table(found):
    latency, bandwidth = link(found)
    lines = ["| | long | wide |", "|---|---|---|"]
    each = [constants(found, case) for case in CASES]
    for name, form in (
        ("gradients, MB", lambda k: f"{k['bytes'] / 1e6:.1f}"),
        ("examples in a batch", lambda k: f"{k['examples']}"),
        ("$c_0$, ms a step", lambda k: f"{1e3 * k['c_0']:.1f}"),
        ("$c_1$, ms an example", lambda k: f"{1e3 * k['c_1']:.1f}"),
        ("$u$, ms an update", lambda k: f"{1e3 * k['update']:.1f}"),
        ("$s$, slowdown with two busy cores", lambda k: f"{k['slower']:.2f}"),
    ):
        lines.append(f"| {name} | " + " | ".join(map(form, each)) + " |")
    here = f"Between two ranks of this machine $L$ = {1e6 * latency:.1f} µs and $W$ = {bandwidth / 1e9:.1f} GB/s."
    return [*lines, "", here]


def measured_table(found):
    lines = ["| | measured, ms | speed-up | cost model, ms | error of the cost model |", "|---|---|---|---|---|"]
    for case in CASES:
        k, data = constants(found, case), found["cases"][case]
        alone = data["threads"]["1"]["step"]
        rows = [(f"{n} thread" + "s" * (n > 1), data["threads"][str(n)]["step"], predict_threads(k, n)) for n in (1, 2)]
        rows += [
            (f"{n} rank" + "s" * (n > 1), data["ranks"][str(n)]["step"], predict(k, n, *link(found), found["cores"]))
            for n in (1, 2, 4)
        ]
        for name, seconds, model in rows:
            error = f"{100 * (model / seconds - 1):+.0f} %"
            lines.append(
                f"| {case}, {name} | {1e3 * seconds:.1f} | {alone / seconds:.2f} | {1e3 * model:.1f} | {error} |"
            )
    return lines


def strong(found, case, ranks, network):
    """Strong scaling: speed-up over one rank for a fixed batch of 1,024 examples (at least one for every rank)."""
    k = constants(found, case)
    one = predict(k, 1, *NETWORKS[network], 1, 1024)
    return one / predict(k, ranks, *NETWORKS[network], 10**9, 1024)


def weak(found, case, ranks, network):
    """Weak scaling: the part of a step that is not communication, when every rank has a whole batch."""
    k = constants(found, case)
    size = k["examples"] * ranks
    alone = predict(k, 2, 0.0, float("inf"), 10**9, 2 * k["examples"])
    return alone / predict(k, ranks, *NETWORKS[network], 10**9, size) if ranks > 1 else 1.0


def predicted_table(found):
    head = [f"{case}, {network.split(' ', 2)[2]}" for case in CASES for network in NETWORKS]
    lines = [f"| ranks | {' | '.join(head)} |", "|---" * (1 + len(head)) + "|"]
    for ranks in RANKS[3:]:
        cells = [
            f"{strong(found, case, ranks, network):.0f} ({100 * weak(found, case, ranks, network):.0f} %)"
            for case in CASES for network in NETWORKS
        ]  # fmt: skip
        lines.append(f"| {ranks} | {' | '.join(cells)} |")
    ends = [f"{crossing(found, case, network):,.0f} for {case} on {network.split(' ', 2)[2]}"
            for case in CASES for network in NETWORKS]  # fmt: skip
    return [*lines, "", f"$P^\\ast$ (defined below) is {', '.join(ends[:-1])} and {ends[-1]}."]


def crossing(found, case, network, examples=1024):
    """The number of ranks at which the shared work takes as long as the work that is not shared."""
    k, (_, bandwidth) = constants(found, case), NETWORKS[network]
    return k["c_1"] * examples / (k["c_0"] + k["update"] + 2 * k["bytes"] / bandwidth)


def overlap_table(found):
    lines = ["| ranks | Allreduce after the computation, ms | during the computation, ms |", "|---|---|---|"]
    for ranks, results in found["messages"].items():
        seconds = results["overlap"]
        lines.append(f"| {ranks} | {1e3 * seconds['after']:.1f} | {1e3 * seconds['beneath']:.1f} |")
    return lines


def write(found):
    """Put the tables between their markers, and draw the picture."""
    text = PAGE.read_text(encoding="utf-8")
    for name, lines in tables(found).items():
        text = with_block(text, name, "\n".join(lines))
    PAGE.write_text(text, encoding="utf-8")
    draw(found)


def draw(found):
    """Two plots over the ranks: strong scaling of both cases on both networks, and the parts of a step on Ethernet."""
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    rcParams["svg.hashsalt"], rcParams["svg.fonttype"] = "scaling", "none"
    figure = Figure(figsize=(9.0, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(RANKS, RANKS, color="0.7", linewidth=1, label="ideal")
    for case, color in zip(CASES, COLOURS[:2], strict=True):
        for network, style in zip(NETWORKS, ("--", "-"), strict=True):
            speeds = [strong(found, case, n, network) for n in RANKS]
            left.plot(RANKS, speeds, style, color=color, label=f"{case}, {network}")
    left.set(xscale="log", yscale="log", xlabel="ranks", ylabel="speed-up, same batch", title="1,024 examples a step")
    k, network = constants(found, "wide"), NETWORKS["10 Gbit/s Ethernet"]
    compute = [1e3 * k["c_1"] * 1024 / n for n in RANKS]
    parts = {
        "shared: $c_1 B / P$": compute, "not shared: $c_0 + u$": [1e3 * (k["c_0"] + k["update"])] * len(RANKS),
        "Allreduce": [1e3 * allreduce(n, k["bytes"], *network) for n in RANKS],
    }  # fmt: skip
    for (name, seconds), style in zip(parts.items(), ("-", "--", "-."), strict=True):
        right.plot(RANKS[1:], seconds[1:], style, color="black", label=name)
    right.set(xscale="log", yscale="log", xlabel="ranks", ylabel="ms a step", title="parts of a step: wide, 10 Gbit/s")
    for axes in (left, right):
        axes.grid(color="0.92")
        axes.legend(frameon=False, fontsize=8)
        axes.set_xticks(RANKS[::2], [str(n) for n in RANKS[::2]])
        axes.minorticks_off()
    figure.savefig(PICTURE, metadata={"Date": None})
