"""dates --from: questions and answers as ids, the targets, and the evaluation of answers."""

import numpy as np
import pytest

from numpy_attention.errors import InputError
from tests.pretrained import tiny
from tests.training.tasks.small_pretrained import folder, run_from

__all__ = ["folder"]
IM_START, IM_END = (tiny.TOKENS.index(token) for token in ("<|im_start|>", "<|im_end|>"))


@pytest.fixture
def trainer(tmp_path, folder):
    return run_from(folder, tmp_path / "run", "dates", context=128, lora=6, steps=40, learning_rate=3e-2)


def test_only_the_answer_and_its_end_token_are_targets(trainer):
    ids, targets = trainer.task.encode([("3 May 1987", "1987-05-03"), ("Tuesday, 3 March 1987", "1987-03-03")])
    decode = trainer.task.start.tokenizer.decode
    assert ids.shape == targets.shape
    for row, target, (written, iso) in zip(ids, targets, [("3 May", "1987-05-03"), ("Tuesday", "1987-03-03")]):
        counted = target >= 0
        assert decode(target[counted][:-1]) == iso
        assert target[counted][-1] == IM_END
        first = int(counted.argmax())  # the position that predicts the first character of the answer
        np.testing.assert_array_equal(row[first + 1 : first + counted.sum()], target[counted][:-1])
        assert written in decode(row[: first + 1])
        assert iso not in decode(row[: first + 1])
        assert row[0] == IM_START
        assert (row[: first + 1] == IM_START).sum() == 2  # one from the user, one from the assistant


def test_correct_answer_is_exactly_the_date(trainer, monkeypatch):
    task = trainer.task
    answers = {"3 May 1987": "1987-05-03", "4 May 1987": "1987-05-04.", "5 May 1987": "1987-05-50", "6 May 1987": ""}
    pairs = [(written, f"1987-05-0{written[0]}") for written in answers]
    asked = [task.question(written) for written in answers]

    def generate(prompts, num_tokens, temperature, stop_token):
        assert [p.tolist() for p in prompts] == [p.tolist() for p in asked]
        assert (temperature, stop_token) == (0.0, IM_END)
        return [np.concatenate([p, task.answer(message)]) for p, message in zip(prompts, answers.values())]

    monkeypatch.setattr(trainer.model, "generate", generate)
    assert task.exact(trainer.model, pairs) == [True, False, False, False]


def test_refuses_context_too_short_for_question_and_answer(tmp_path, folder):
    with pytest.raises(InputError, match=r"--context must be at least \d+, a question with its answer, got 40"):
        run_from(folder, tmp_path / "run", "dates", context=40)
