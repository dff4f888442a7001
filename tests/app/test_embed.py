"""`embed`: the lines of a text that are nearest to a query."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from numpy_attention.app.main import main
from numpy_attention.pretrained.c36_load import load_pretrained
from tests.app.commands import refused
from tests.pretrained import tiny

CONTEXT = tiny.BERT["max_position_embeddings"]
LINES = ["the rain", "", "  bread and rain\r", "so no", "   ", "rain " * 20, "one is a bird", "the bread"]
Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("embed"), "bert")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "lines.txt"
    file.write_bytes("\n".join(LINES).encode())
    return file


@pytest.mark.parametrize("limit", [CONTEXT, 6], ids=["of the context", "of its training"])
def test_nearest_lines_come_first_with_cosines_and_line_numbers(
    limit: int, path: Path, file: Path, tmp_path: Path, capsys: Captured
) -> None:
    if limit < CONTEXT:
        path = Path(shutil.copytree(path, tmp_path / "short"))
        (path / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": limit}))
    model, tokenizer = load_pretrained(path)

    def direction(text: str) -> np.ndarray:
        """The direction of a text; a long text keeps its beginning, and the token that ends it."""
        return model.forward(np.array([[2, *tokenizer.encode(text)[: limit - 2], 3]]))[0][0]

    cosines = {n: float(direction(line) @ direction("no bread")) for n, line in enumerate(LINES, 1) if line.strip()}
    order = sorted(cosines, key=lambda n: -cosines[n])
    assert main(["embed", str(path), str(file), "--query", "no bread", "--top", "4"]) == 0
    shown = [line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines()]
    assert [int(number) for _, number, _ in shown] == order[:4]
    assert [line for *_, line in shown] == [LINES[n - 1].strip() for n in order[:4]]
    np.testing.assert_allclose([float(cosine) for cosine, *_ in shown], [cosines[n] for n in order[:4]], atol=6e-4)


def test_refuses_unusable_arguments_in_one_line(path: Path, file: Path, tmp_path: Path, capsys: Captured) -> None:
    query = ["--query", "rain"]
    assert "--query" in refused(capsys, "embed", path, file)
    assert "--query must hold at least one character" in refused(capsys, "embed", path, file, "--query", " ")
    long = refused(capsys, "embed", path, file, "--query", "rain " * 20)
    assert f"--query is 22 tokens long; at most {CONTEXT} are possible" in long
    assert "cannot read none.txt: No such file" in refused(capsys, "embed", path, "none.txt", *query)
    assert "only a TextEncoder can compare" in refused(capsys, "embed", tiny.write(tmp_path, "gpt2"), file, *query)


@pytest.mark.filterwarnings("default:.* left out")
def test_a_warning_about_heads_that_are_left_out_is_one_line(file: Path, tmp_path: Path, capsys: Captured) -> None:
    tensors = tiny.tensors_of("bert", tiny.BERT) | {"cls.predictions.bias": np.ones(3, np.float32)}
    path = tiny.write_folder(tmp_path / "masked", tiny.BERT, tensors)
    assert main(["embed", str(path), str(file), "--query", "the rain"]) == 0
    said = f"numpy-attention: {path}: left out, because a TextEncoder has no such head: cls.predictions.bias\n"
    assert capsys.readouterr().err == said
