"""`embed`: the nearest lines of a text, by a model that gives each a direction."""

from pathlib import Path

import numpy as np
import pytest

from numpy_attention.app.embed import directions, within
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


def alone(path: Path, text: str) -> np.ndarray:
    """The direction of one text, run by itself without padding."""
    model, tokenizer = load_pretrained(path)
    ids = tokenizer.encode(text)[: CONTEXT - 2]
    return model.forward(np.array([[2, *ids, 3]]))[0][0]


def test_nearest_lines_come_first_with_cosines_and_line_numbers(
    path: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = alone(path, "no bread")
    cosines = {n: float(alone(path, line.strip()) @ query) for n, line in enumerate(LINES, 1) if line.strip()}
    order = sorted(cosines, key=lambda n: -cosines[n])
    for batch in ("1", "7", "20", "2048"):
        assert main(["embed", str(path), str(file), "--query", "no bread", "--top", "4", "--batch", batch]) == 0
        out, err = capsys.readouterr()
        shown = [line.split(maxsplit=2) for line in out.splitlines()]
        assert [int(number) for _, number, _ in shown] == order[:4]
        assert [line for *_, line in shown] == [LINES[n - 1].strip() for n in order[:4]]
        np.testing.assert_allclose([float(cosine) for cosine, *_ in shown], [cosines[n] for n in order[:4]], atol=6e-4)
        assert err.startswith("6 lines in ")
        assert f"1 longer than {CONTEXT} tokens, cut to their beginning" in err


def test_embed_shows_five_lines_by_default(
    path: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for options, count in (([], 5), (["--top", "99"], 6)):
        assert main(["embed", str(path), str(file), "--query", "rain", *options]) == 0
        assert len(capsys.readouterr().out.splitlines()) == count
    file.write_text("rain\n")
    assert main(["embed", str(path), str(file), "--query", "rain"]) == 0
    assert capsys.readouterr().err.startswith("1 line in ")
    file.write_text("rain\nbread\n")
    assert main(["embed", str(path), str(file), "--query", "rain"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == " 1.000  1  rain", "a text is nearest to itself"
    assert "longer" not in err


def test_long_text_keeps_its_beginning_and_last_token() -> None:
    ids = np.array([2, 11, 12, 13, 14, 3])
    assert within(ids, 6) is ids
    assert within(ids, 4).tolist() == [2, 11, 12, 3]


def test_directions_do_not_depend_on_the_batch(path: Path, rng: np.random.Generator) -> None:
    model, _ = load_pretrained(path)
    assert isinstance(model, TextEncoder)
    texts = [rng.integers(1, len(tiny.WORDS), length) for length in (3, 1, 9, 15, 9, 2, 4)]
    expected = [model.forward(ids[None])[0][0] for ids in texts]
    for batch in (1, 18, 31, 1000):
        np.testing.assert_allclose(directions(model, texts, batch), expected, rtol=1e-5, atol=1e-6)


def test_batches_respect_the_token_limit_and_start_with_the_longest_texts(
    path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    model, _ = load_pretrained(path)
    forward, shapes = model.forward, []

    def counted(ids: np.ndarray, lengths: np.ndarray) -> object:
        shapes.append(ids.shape)
        return forward(ids, lengths=lengths)

    monkeypatch.setattr(model, "forward", counted)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # with two threads, a later batch may begin before an earlier one
    assert isinstance(model, TextEncoder)
    directions(model, [rng.integers(0, 9, length) for length in (3, 1, 12, 5, 9, 2, 4)], 10)
    assert shapes == [(1, 12), (1, 9), (2, 5), (3, 3)]
    directions(model, [rng.integers(0, 9, length) for length in (3, 1)], 10**400)
    assert shapes[4:] == [(2, 3)]


def test_text_that_looks_like_a_special_token_is_text(path: Path) -> None:
    _, tokenizer = load_pretrained(path)
    ids = tokenizer.encode_with_special("the [SEP] rain").tolist()
    assert (ids[0], ids[-1], ids.count(2), ids.count(3)) == (2, 3, 1, 1)


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
    assert "No such file" in refused(capsys, "embed", path, tmp_path / "none.txt", *query)
    file.write_text("")
    assert "is empty; a text is needed" in refused(capsys, "embed", path, file, *query)
    file.write_text("\n \n\n")
    assert "holds only empty lines" in refused(capsys, "embed", path, file, *query)
    file.write_bytes(b"rain \xff")
    assert "is not UTF-8 text" in refused(capsys, "embed", path, file, *query)
    file.write_text("rain")
    assert "only a TextEncoder can compare" in refused(capsys, "embed", tiny.write(tmp_path, "gpt2"), file, *query)
    monkeypatch.setenv("NUMPY_ATTENTION_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert "python -m numpy_attention fetch minilm" in refused(capsys, "embed", "minilm", file, *query)


def test_refuses_cosines_that_are_not_finite(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tiny.write_overflowing(tmp_path, tiny.BERT)
    message = refused(capsys, "embed", folder, file, "--query", "rain")
    assert "embed: the cosines are nan at [0]: the weights are too large or damaged" in message
