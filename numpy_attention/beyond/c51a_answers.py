"""Chapter 51, continued. Three tasks: a GPT answers questions whose answers can be checked

    3 1 4 1 5 9 = 9 5 1 4 1 3        the question: six digits; the answer: the digits in reverse order

    answers             the loss of the next token, on right answers
    grpo --from RUN     the model writes answers, a checker rewards the right ones (Chapter 51)
    dpo --from RUN      pairs of answers that the model of RUN wrote: one right, one wrong (Chapter 50)

In `grpo`, each step draws new answers from the model as it is. So the model is the one that wrote the answers, all
ratios are 1, and the log shows a loss near 0 that trains. The log also has the entropy of the tokens that the model
draws, and the KL divergence from the model of RUN, in nats per token.
"""

import hashlib
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from numpy_attention.backend import to_host
from numpy_attention.beyond.c50_preferences import (
    dpo_loss,
    dpo_loss_backward,
    sequence_log_probability,
    sequence_log_probability_backward,
)
from numpy_attention.beyond.c51_policy import clipped_policy_loss, clipped_policy_loss_backward, group_advantages
from numpy_attention.errors import InputError, require_array
from numpy_attention.layers.c13_layer import Parameters
from numpy_attention.models.c23_gpt import GPT
from numpy_attention.ops.c11_losses import cross_entropy
from numpy_attention.ops.c11a_weighted_losses import (
    log_softmax,
    weighted_cross_entropy,
    weighted_cross_entropy_backward,
)
from numpy_attention.training.c28_loop import Batch
from numpy_attention.training.c30_parallel import Workers
from numpy_attention.training.config import TrainConfig
from numpy_attention.training.restore import checkpoint_path, gpt_model, load_run
from numpy_attention.training.task import Task
from numpy_attention.training.tasks.labelled import TEST

EQUALS = 10  # the token after the digits 0 to 9
FRESH = 500  # held-out questions
GROUP = 8  # answers to one question
KL = 0.02  # the factor of the penalty in grpo
BETA = 1.0  # in dpo; with 0.1 and Adam, the probability of right answers falls


class AnswersTask(Task):
    """Digits, and the digits in reverse order; the loss counts the tokens of the answer."""

    defaults: ClassVar[dict[str, Any]] = {
        "layers": 2, "heads": 2, "d_model": 64, "d_ff": 128, "context": 12, "batch": 64, "steps": 400,
        "learning_rate": 1e-3, "beta2": 0.999, "weight_decay": 0.0, "warmup": 50, "eval_every": 100, "save_every": 100,
    }

    reference: Any = None  # the GPT that a run with --from starts from

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        if config.context % 2:
            raise InputError(f"--context must be even: half question, half answer; got {config.context}")
        self.digits = config.context // 2
        self.test = self.questions(FRESH, np.random.default_rng([TEST, config.seed]))

    def questions(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Digits and the sign =, (count, digits + 1)."""
        rows = rng.integers(0, 10, size=(count, self.digits + 1))
        rows[:, -1] = EQUALS
        return rows

    def right(self, questions: np.ndarray) -> np.ndarray:
        """The questions with their right answers, (..., 2 digits + 1)."""
        return np.concatenate([questions, questions[..., -2::-1]], axis=-1)

    def written(self, model: GPT, questions: np.ndarray, rng: np.random.Generator | None) -> np.ndarray:
        """The questions with answers of the model: drawn with an rng, otherwise the most probable tokens."""
        return np.stack(model.generate(questions, self.digits, rng, temperature=0.0 if rng is None else 1.0))

    def rewards(self, rows: np.ndarray) -> np.ndarray:
        """1.0 for a right answer, 0.0 for a wrong one, (...)."""
        return (rows == self.right(rows[..., : self.digits + 1])).all(axis=-1).astype(np.float64)

    def inputs(self, rows: np.ndarray) -> Batch:
        """ids and targets, both (..., 2 digits); a target is -100 inside the question."""
        targets = rows[..., 1:].copy()
        targets[..., : self.digits] = -100
        return rows[..., :-1], targets

    def model(self, rng: np.random.Generator | None) -> GPT:
        return self.build(GPT, rng, vocab_size=EQUALS + 1)

    def batch(self, rng: np.random.Generator) -> Batch:
        return self.inputs(self.right(self.questions(self.config.batch, rng)))

    def evaluate(self, model: GPT, workers: Workers) -> dict[str, float]:
        """The loss of right answers; the share of right answers, most probable and drawn; with the drawn ones, the
        entropy and the KL divergence from the start, in nats per token."""
        ids, targets = self.inputs(self.right(self.test))
        drawn = self.written(model, self.test, np.random.default_rng(TEST))
        p = np.exp(log_probs := self.log_probs(model, drawn))  # (FRESH, digits, V)
        figures = {
            "val_loss": cross_entropy(model.forward(ids)[0], targets)[0],
            "val_exact": self.rewards(self.written(model, self.test, None)).mean(),
            "val_reward": self.rewards(drawn).mean(), "entropy": -(p * log_probs).sum(-1).mean(),
        }
        if self.reference is not None:
            figures["kl"] = (p * (log_probs - self.log_probs(self.reference, drawn))).sum(-1).mean()
        return {name: float(figure) for name, figure in figures.items()}

    def log_probs(self, model: GPT, rows: np.ndarray) -> np.ndarray:
        """The log-probabilities of all tokens in the places of the answer, (count, digits, V)."""
        logits, _ = model.forward(rows[:, :-1])
        return log_softmax(to_host(logits)[:, self.digits :].astype(np.float64))[0]

    def description(self) -> str:
        return f"task: write {self.digits} digits in reverse order"

    def report(self, model: GPT, rng: np.random.Generator, workers: Workers) -> str:
        lines = [f"right answers to {FRESH} fresh questions    most probable      drawn"]
        models = {"this model": model} if self.reference is None else {"before": self.reference, "after": model}
        for name, one in models.items():
            found = self.evaluate(one, workers)
            lines.append(f"  {name:<36} {found['val_exact']:>16.1%} {found['val_reward']:>10.1%}")
        return "\n".join(lines)


class FromRun(AnswersTask):
    """The common part of grpo and dpo: the model of a run is the start and the reference. `batch` counts questions."""

    policy: type[GPT]
    defaults: ClassVar[dict[str, Any]] = {
        "context": 12, "batch": 32, "steps": 500, "learning_rate": 1e-4, "min_learning_rate": 1e-5, "beta2": 0.999,
        "weight_decay": 0.0, "warmup": 10, "eval_every": 50, "save_every": 50,
    }

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        if config.from_ is None:
            raise InputError(f"--task {config.task} needs --from RUN, the directory of a run of --task answers")
        if config.lora:
            raise InputError(f"--task {config.task} trains all parameters; leave out --lora")
        path = checkpoint_path(Path(config.from_))
        start, arrays, meta = load_run(path)
        if start.task not in ("answers", "grpo", "dpo") or start.context != config.context:
            got = f"--task {start.task} --context {start.context}"
            raise InputError(f"--from must be a run of answers, grpo or dpo with --context {config.context}, got {got}")
        self.reference = gpt_model(arrays, meta)
        self.sha256 = hashlib.sha256(path.read_bytes()).hexdigest()

    def model(self, rng: np.random.Generator | None) -> GPT:
        self.current = self.policy(self.reference.config, None)
        self.current.load_parameters(self.reference.parameters())
        return self.current

    def drawn(self, model: GPT, rng: np.random.Generator) -> np.ndarray:
        """Groups of answers of a model, each group to one question, (batch, GROUP, 2 digits + 1)."""
        questions = np.repeat(self.questions(self.config.batch, rng), GROUP, axis=0)
        return self.written(model, questions, rng).reshape(self.config.batch, GROUP, -1)

    def saved(self) -> dict[str, Any]:
        return {"from_sha256": self.sha256}


class GRPOPolicy(GPT):
    """A GPT with the loss of Chapter 51 on answers that it has just written."""

    def loss(  # type: ignore[override]
        self, ids: np.ndarray, targets: np.ndarray, old: np.ndarray, reference: np.ndarray, advantages: np.ndarray,
        training: bool = False, rng: np.random.Generator | None = None,
    ) -> tuple[np.ndarray, Any]:
        """ids, targets, and the losses of the targets (old, reference) (B, T); advantages (B,)."""
        logits, cache = self.forward(ids, rng=rng)
        losses, of_losses = weighted_cross_entropy(logits, targets, reduction="none")  # (B, T)
        old, reference, advantages = (np.asarray(x, like=logits) for x in (old, reference, advantages))
        options: dict[str, Any] = {"mask": targets != -100, "reference_log_probs": -reference, "kl": KL}
        loss, of_loss = clipped_policy_loss(-losses, -old, advantages, **options)
        return loss, (cache, of_losses, of_loss)

    def backward(self, cache: Any, dloss: float = 1.0) -> Parameters:
        cache, of_losses, of_loss = cache
        # loss = clipped_policy_loss(-losses, ...); the other arguments are constants
        dlog_probs, *_ = clipped_policy_loss_backward(dloss, of_loss)
        # log_probs = -losses, losses = weighted_cross_entropy(logits)
        return self.gradients_from_logits(cache, weighted_cross_entropy_backward(-dlog_probs, of_losses))


class GRPOTask(FromRun):
    """Groups of answers, drawn in each step and rewarded by the checker."""

    policy = GRPOPolicy

    def batch(self, rng: np.random.Generator) -> Batch:
        rows = self.drawn(self.current, rng)  # (groups, GROUP, 2 digits + 1)
        advantages = group_advantages(self.rewards(rows))
        ids, targets = self.inputs(flat(rows))
        old, reference = (
            weighted_cross_entropy(model.forward(ids)[0], targets, reduction="none")[0]
            for model in (self.current, self.reference)
        )
        return ids, targets, old, reference, advantages.reshape(-1).astype(old.dtype)


class DPOPolicy(GPT):
    """A GPT with the loss of DPO on pairs of answers."""

    def loss(  # type: ignore[override]
        self, ids: np.ndarray, targets: np.ndarray, reference: np.ndarray, training: bool = False,
        rng: np.random.Generator | None = None,
    ) -> tuple[np.ndarray, Any]:
        """ids and targets (B, 2, T): the chosen and the rejected answer; reference (B, 2)."""
        require_array("DPOPolicy", "ids", ids, "an array (B, 2, T)")
        require_array("DPOPolicy", "targets", targets, "an array (B, 2, T)")
        logits, cache = self.forward(flat(ids), rng=rng)
        L, of_L = sequence_log_probability(logits, flat(targets))  # (2 B,)
        chosen, rejected, reference = L[::2], L[1::2], np.asarray(reference, like=L)
        loss, of_loss = dpo_loss(chosen, rejected, reference[:, 0], reference[:, 1], BETA)
        return loss, (cache, of_L, of_loss)

    def backward(self, cache: Any, dloss: float = 1.0) -> Parameters:
        cache, of_L, of_loss = cache
        # loss = dpo_loss(chosen, rejected, ...); the references are constants
        dchosen, drejected, *_ = dpo_loss_backward(dloss, of_loss)
        # chosen, rejected = L[::2], L[1::2]
        dL = np.stack([dchosen, drejected], axis=1).reshape(-1)  # (2 B,)
        # L = sequence_log_probability(logits)
        return self.gradients_from_logits(cache, sequence_log_probability_backward(dL, of_L))


class DPOTask(FromRun):
    """Pairs of answers of the start to the same question: one right, one wrong."""

    policy = DPOPolicy

    def batch(self, rng: np.random.Generator) -> Batch:
        for _ in range(20):
            rows = self.drawn(self.reference, rng)  # (groups, GROUP, 2 digits + 1)
            rewards = self.rewards(rows)
            mixed = rewards.max(axis=1) > rewards.min(axis=1)
            if mixed.any():
                break
        else:
            raise InputError(f"the model of --from {self.config.from_} writes no right answer, or no wrong one")
        pairs = np.stack([rewards.argmax(axis=1), rewards.argmin(axis=1)], axis=1)[mixed]
        ids, targets = self.inputs(np.take_along_axis(rows[mixed], pairs[..., None], axis=1))  # (B, 2, 2 digits)
        reference, _ = sequence_log_probability(self.reference.forward(flat(ids))[0], flat(targets))
        return ids, targets, reference.reshape(-1, 2)


def flat(x: np.ndarray) -> np.ndarray:
    """Groups or pairs of sequences as one batch: (B, 2, T) -> (2 B, T)."""
    return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])
