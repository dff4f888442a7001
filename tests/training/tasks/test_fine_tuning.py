"""text --from: fine-tuning a pretrained model, all its parameters or a low-rank change."""

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.app.main import main
from numpy_attention.errors import InputError
from numpy_attention.pretrained.c36_load import load_pretrained
from tests.app.commands import no_pictures
from tests.pretrained import tiny
from tests.training.small_runs import assert_same, resume
from tests.training.tasks.small_pretrained import folder, run_from

__all__ = ["folder", "no_pictures"]


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("the rain in the bread, and the words of the users\n" * 40, encoding="utf-8")
    return str(path)


def base_size(folder):
    return load_pretrained(folder)[0].num_parameters()


def stepped(trainer, steps):
    with trainer.workers:
        return [trainer.one_step()[0] for _ in range(steps)]


@pytest.mark.parametrize("lora", [0, 3])
def test_loss_falls_and_only_trainable_parameters_change(tmp_path, folder, text, lora):
    trainer = run_from(folder, tmp_path / "run", "text", text=text, context=12, steps=20, learning_rate=2e-2, lora=lora)
    before = {name: getattr(owner, own).copy() for name, owner, own in trainer.model.arrays()}
    losses = stepped(trainer, 20)
    assert np.mean(losses[-5:]) < 0.9 * np.mean(losses[:5])
    learned = trainer.model.parameters().keys()
    assert learned == ({name for name in before if name.endswith((".a", ".b"))} if lora else before.keys())
    for name, owner, own in trainer.model.arrays():
        assert np.array_equal(before[name], getattr(owner, own)) == (name not in learned), name


@pytest.mark.parametrize("lora", [0, 2])
def test_resumed_run_equals_uninterrupted_run_bit_for_bit(tmp_path, folder, text, lora):
    whole = run_from(folder, tmp_path / "whole", "text", text=text, context=12, steps=6, lora=lora)
    stepped(whole, 6)
    part = run_from(folder, tmp_path / "part", "text", text=text, context=12, steps=6, lora=lora)
    stepped(part, 3)
    part.save()
    rest = resume(tmp_path / "part")
    stepped(rest, 3)
    assert_same(whole, rest)


def test_refuses_another_model_at_the_same_path(tmp_path, folder, text, capsys):
    run_from(folder, tmp_path / "run", "text", text=text, context=12).save()
    settings = tiny.LLAMA | {"max_position_embeddings": 160}
    tiny.write_safetensors(folder / "model.safetensors", tiny.tensors_of("another", settings))
    with pytest.raises(InputError, match="the model of --from is not the one that the run started from; give its"):
        resume(tmp_path / "run")


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize("keep", ["adapter", "merged"])
def test_written_result_turns_the_pretrained_model_into_the_trained_one(tmp_path, folder, text, keep, capsys):
    out = tmp_path / "run"
    command = ["train", "--from", folder, "--lora", "2", "--text", text, "--context", "12", "--steps", "4"]
    assert main([str(a) for a in [*command, "--learning-rate", "0.05", "--keep", keep, "--out", out]]) == 0
    message = capsys.readouterr().out
    assert f"checkpoint.npz, {keep}.safetensors" in message
    assert "before" in message
    assert "after" in message
    base = load_pretrained(folder)[0]
    ids = np.arange(10)[None]
    untouched, _ = base.forward(ids)
    into = {"into": base} if keep == "adapter" else {}
    model = na.import_safetensors(out / f"{keep}.safetensors", **into)
    restored, _ = resume(out).model.forward(ids)
    np.testing.assert_allclose(model.forward(ids)[0], restored, rtol=0, atol=1e-5)
    assert np.abs(untouched - restored).max() > 1e-3
    adapter, merged = 4 * resume(out).model.num_parameters(), 4 * base_size(folder)
    numbers = {"adapter": adapter, "merged": merged}[keep]
    assert numbers < (out / f"{keep}.safetensors").stat().st_size < numbers + 10_000  # and the header


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--from", "FOLDER", "--layers", "3", "--d-model", "8"], "--layers, --d-model has no effect with this --from"),
        (["--from", "FOLDER", "--task", "sum"], "--task with --from must be one of text, dates, grpo, dpo, got 'sum'"),
        (["--from", "FOLDER", "--context", "161"], "--context must be at most 160"),
        (["--from", "BERT"], "is not a language model"),
        (["--from", "RUN"], "is the output of a training run; continue it with --resume"),
    ],
)
def test_impossible_options_give_one_line_of_error(tmp_path, folder, text, options, message, capsys):
    bert = tiny.write(tmp_path, "bert")
    (tmp_path / "earlier").mkdir()
    (tmp_path / "earlier" / "checkpoint.npz").write_bytes(b"PK")
    places = {"FOLDER": str(folder), "BERT": str(bert), "RUN": str(tmp_path / "earlier")}
    command = ["train", "--text", text, "--out", str(tmp_path / "run"), *(places.get(o, o) for o in options)]
    assert main(command) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()
