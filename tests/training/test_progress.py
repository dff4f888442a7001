"""The progress of a run: a bar on a terminal, otherwise lines."""


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
