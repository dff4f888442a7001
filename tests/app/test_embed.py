"""`embed`: the lines of a text that are nearest to a query."""

from pathlib import Path

import numpy as np
import pytest

from numpy_attention.app import embed
from numpy_attention.app.main import main
from numpy_attention.models.text_encoder import TextEncoder
from numpy_attention.pretrained.load import load_pretrained
from tests.app.commands import refused
from tests.pretrained import tiny

CONTEXT = tiny.BERT["max_position_embeddings"]
LINES = ["the rain", "", "  bread and rain\r", "so no", "   ", "rain " * 20, "one is a bird", "the bread"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("embed"), "bert")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "lines.txt"
    file.write_bytes("\n".join(LINES).encode())
    return file


@pytest.mark.parametrize("batch", ["1", "20", "2048"])
def test_nearest_lines_come_first_with_cosines_and_line_numbers(
    path: Path, file: Path, capsys: pytest.CaptureFixture[str], batch: str
) -> None:
    model, tokenizer = load_pretrained(path)

    def alone(text: str) -> np.ndarray:
        """The direction of one text, run by itself without padding; a long text keeps its beginning."""
        return model.forward(np.array([[2, *tokenizer.encode(text)[: CONTEXT - 2], 3]]))[0][0]

    cosines = {n: float(alone(line.strip()) @ alone("no bread")) for n, line in enumerate(LINES, 1) if line.strip()}
    order = sorted(cosines, key=lambda n: -cosines[n])
    assert main(["embed", str(path), str(file), "--query", "no bread", "--top", "4", "--batch", batch]) == 0
    out, err = capsys.readouterr()
    shown = [line.split(maxsplit=2) for line in out.splitlines()]
    assert [int(number) for _, number, _ in shown] == order[:4]
    assert [line for *_, line in shown] == [LINES[n - 1].strip() for n in order[:4]]
    np.testing.assert_allclose([float(cosine) for cosine, *_ in shown], [cosines[n] for n in order[:4]], atol=6e-4)
    assert err.startswith("6 lines in ")
    assert f"1 longer than {CONTEXT} tokens, cut to their beginning" in err


def test_embed_shows_five_lines_by_default_and_a_text_is_nearest_to_itself(
    path: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["embed", str(path), str(file), "--query", "the rain"]) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) == 5
    assert out.splitlines()[0] == " 1.000  1  the rain"


def test_batches_hold_texts_of_similar_length_up_to_the_token_limit(
    path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    model, _ = load_pretrained(path)
    assert isinstance(model, TextEncoder)
    texts = [rng.integers(1, 9, length) for length in (3, 1, 12, 5, 9, 2, 4)]
    expected = [model.forward(ids[None])[0][0] for ids in texts]
    forward, shapes = model.forward, []

    def counted(ids: np.ndarray, lengths: np.ndarray) -> object:
        shapes.append(ids.shape)
        return forward(ids, lengths=lengths)

    monkeypatch.setattr(model, "forward", counted)
    np.testing.assert_allclose(embed.directions(model, texts, 10), expected, rtol=1e-5, atol=1e-6)
    assert sorted(shapes) == [(1, 9), (1, 12), (2, 5), (3, 3)]


def test_refuses_unusable_arguments_in_one_line(
    path: Path, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    query = ["--query", "rain"]
    assert "--query" in refused(capsys, "embed", path, file)
    assert "--query must hold at least one word" in refused(capsys, "embed", path, file, "--query", " ")
    long = refused(capsys, "embed", path, file, "--query", "rain " * 20)
    assert f"--query is 22 tokens long; the model reads at most {CONTEXT}" in long
    assert "--top must be at least 1, got 0" in refused(capsys, "embed", path, file, *query, "--top", "0")
    assert "--batch must be at least 1, got 0" in refused(capsys, "embed", path, file, *query, "--batch", "0")
    assert "cannot read none.txt: No such file" in refused(capsys, "embed", path, "none.txt", *query)
    file.write_text("\n \n\n")
    assert "holds only empty lines" in refused(capsys, "embed", path, file, *query)
    file.write_text("rain")
    assert "only a TextEncoder can compare" in refused(capsys, "embed", tiny.write(tmp_path, "gpt2"), file, *query)
    monkeypatch.setattr(embed, "LONGEST", 3)
    assert "has 4 bytes; embed reads at most 3: split it" in refused(capsys, "embed", path, file, *query)
