"""The progress of a run: a bar on a terminal, otherwise lines."""


import sys
from types import SimpleNamespace

from numpy_attention.training.progress import Progress

ENTRY = {
    "step": 50, "loss": 1.25, "val_loss": 1.5, "loss_at_0": 3.0, "copying.blocks.0.attention.0": 0.5,
    "tokens_per_second": 12345.6, "learning_rate": 0.1,
}


def test_line_shows_figures_speed_and_remaining_time(capsys):
    with Progress(200, 0) as progress:
        for _ in range(50):
            progress.advance(None)
        progress.start -= 100  # as if the 50 steps had taken so many seconds
        progress.line(ENTRY)
    out = capsys.readouterr().out
    assert out.startswith("step  50/200  loss 1.2500  val_loss 1.5000  12,346 tokens/s  ")
    assert 299 <= int(out.split()[-3]) <= 301
    assert out.endswith(" s left\n")


def test_terminal_shows_a_bar_below_the_lines(monkeypatch):
    seen = []

    class Bar:
        def __init__(self, **options):
            seen.append(("bar", options["total"], options["initial"]))

        def set_postfix_str(self, text, refresh):
            seen.append(text)

        def update(self, steps):
            seen.append(steps)

        def write(self, text):
            seen.append(text)

        def close(self):
            seen.append("closed")

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setitem(sys.modules, "tqdm", SimpleNamespace(tqdm=Bar))
    with Progress(200, 49) as progress:
        progress.advance(ENTRY)
        progress.line(ENTRY)
        progress.advance(None)
    line = "step  50/200  loss 1.2500  val_loss 1.5000  12,346 tokens/s"
    assert seen == [("bar", 200, 49), "loss 1.250, 12,346 tokens/s", 1, line, 1, "closed"]
