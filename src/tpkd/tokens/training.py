"""Train a language model from a teacher's cache: one plain loop, resumable after a kill, evaluated on held-out text."""

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tpkd.config.loading import ConfigError, config_yaml, expand_data, keyed
from tpkd.config.tokens import TokenOptimizerConfig, TokensConfig
from tpkd.data.order import SampleOrder
from tpkd.errors import InputError
from tpkd.files import read_text, write_file
from tpkd.lock import locked
from tpkd.models.weights import weights_fingerprint
from tpkd.objectives import Objective, create
from tpkd.objectives.base import Batch
from tpkd.teacher.cache.tokens import TokenCache
from tpkd.tokens.cache import open_text_cache
from tpkd.tokens.evaluation import evaluate, read_margins, student_logits, teacher_loss, write_margins
from tpkd.tokens.record import RESULT_NAME, CurvePoint, TokenMetrics, TokenResult
from tpkd.tokens.student import check_vocabulary, load_student, load_student_tokenizer
from tpkd.training.checkpoint import Checkpoint, Checkpoints

CONFIG_NAME = "config.yaml"
CHECKPOINTS_NAME = "checkpoints"
STUDENT_NAME = "student"
"""The folder of the trained student, as transformers reads it, with its tokeniser."""
KEEP = 1
"""Checkpoints of a run: weights and optimiser of a language model are large."""


@dataclass
class Progress:
    """What a run has done so far, beside its weights."""

    step: int = 0
    seconds: float = 0.0
    losses: list[float] = field(default_factory=list)
    recent: list[float] = field(default_factory=list)
    curve: list[dict[str, Any]] = field(default_factory=list)


def make_objective(config: TokensConfig) -> Objective:
    """The objective, refused by name where it cannot learn from a truncated teacher."""
    with keyed("objective"):
        objective = create(config.objective.name, **config.objective.settings)
        takes = "teacher_logits" not in objective.needs or objective.takes_top_k
        if not takes or objective.needs - {"labels", "teacher_logits"}:
            way_out = f"; {objective.top_k_condition}" if objective.top_k_condition else ""
            raise InputError(f"expected one that learns from a truncated teacher, found {objective.name}{way_out}")
    return objective


def train_tokens(
    config: TokensConfig,
    *,
    resume: bool = False,
    on_step: Callable[[int, int, float], None] = lambda step, steps, loss: None,
) -> TokenResult:
    """Train one student; the same call again continues, and returns the result of a run that is finished.

    Args:
        config: with `output`.
        resume: refuse to start from nothing.
        on_step: told the step, the number of steps and the loss.

    Raises:
        InputError: a key, a file or the cache is not as it must be, or the directory holds another run.
    """
    if config.directory is None:
        raise ConfigError("output: missing, and a run needs a directory")
    directory = Path(config.directory)
    objective = make_objective(config)
    directory.mkdir(parents=True, exist_ok=True)
    with locked(directory, "training run"):
        _check_config(directory, config, resume=resume)
        if (directory / RESULT_NAME).exists():
            return TokenResult.from_json(read_text(directory / RESULT_NAME))
        run = _Run(config, directory, objective, on_step)
        # Not before: a run that was refused must not occupy the directory for the one that is put right.
        write_file(directory / CONFIG_NAME, config_yaml(config))
        return run.finish()


def _check_config(directory: Path, config: TokensConfig, *, resume: bool) -> None:
    path, text = directory / CONFIG_NAME, config_yaml(config)
    if not path.exists():
        if resume:
            raise InputError(f"{directory}: expected a run to continue, found none")
        return
    if (found := read_text(path)) != text:
        lines = zip(text.splitlines(), found.splitlines(), strict=False)
        expected, other = next((pair for pair in lines if pair[0] != pair[1]), ("another length", "this one"))
        raise InputError(
            f"{path}: expected the configuration of this run, {expected.strip()!r}, found {other.strip()!r}; take "
            "another output"
        )


class _Run:
    """One run on its way."""

    def __init__(
        self, config: TokensConfig, directory: Path, objective: Objective, on_step: Callable[[int, int, float], None]
    ) -> None:
        self.config, self.directory, self.objective, self.on_step = config, directory, objective, on_step
        self.cache, text = open_text_cache(config)
        self.held_out = None if config.evaluation is None else open_text_cache(config, held_out=True)[0]
        self.tokenizer = load_student_tokenizer(config, text.tokenizer)
        self.model = load_student(config)
        for cache in (self.cache, self.held_out):
            if cache is not None:
                check_vocabulary(config, self.model, cache)
        self.start_sha256 = weights_fingerprint(self.model)
        self.model.to("cuda" if torch.cuda.is_available() else "cpu")
        self.optimizer = _optimizer(self.model, config.optimizer)
        self.order = SampleOrder(config.seed, len(self.cache))
        self.progress = Progress()
        self._began_with = {"token cache": self.cache.cache.fingerprint, "student": self.start_sha256}
        self.checkpoints = Checkpoints(directory / CHECKPOINTS_NAME, keep=KEEP)

    def finish(self) -> TokenResult:
        """Train to the end, evaluate, and write the result; the student is saved as a transformers folder."""
        checkpoint = self._checkpoint()
        start, margins = self._start()
        if checkpoint is not None:
            self._restore(checkpoint)
        self.model.train()
        while self.progress.step < self.config.steps:
            self._step()
            self._look(margins)
            step = self.progress.step
            if step % self.config.checkpoint_every == 0 or step == self.config.steps:
                self._save()
        result = self._result(start, margins)
        student: Any = self.model
        for part in (student, self.tokenizer):
            part.save_pretrained(self.directory / STUDENT_NAME)
        write_file(self.directory / RESULT_NAME, result.to_json())
        self.checkpoints.remove()
        return result

    def _start(self) -> tuple[TokenMetrics | None, np.ndarray | None]:
        """The student before its first step; of several runs with one start the first looks, and the others read."""
        evaluation = self.config.evaluation
        if evaluation is None or self.held_out is None:
            return None, None
        named = evaluation.start
        path = self.directory / "start.safetensors" if named is None else Path(expand_data(named))
        identity = f"{self.start_sha256}-{self.held_out.cache.fingerprint}-{evaluation.tokens}"
        margins, beside = read_margins(path, identity), path.with_suffix(".json")
        if margins is not None and beside.exists():
            return TokenMetrics(**json.loads(read_text(beside))), margins
        metrics, margins = evaluate(self.model, self.held_out, evaluation.tokens)
        write_margins(path, margins, identity)
        write_file(beside, json.dumps(vars(metrics)))
        return metrics, margins

    def _step(self) -> None:
        config, progress, begun = self.config, self.progress, time.monotonic()
        for group in self.optimizer.param_groups:
            group["lr"] = config.optimizer.learning_rate * rate_factor(progress.step, config.steps, config.optimizer)
        first = progress.step * config.batch_size
        rows, _ = self.order.positions(first, first + config.batch_size)
        loss = batch_loss(self.model, self.cache, self.objective, rows)
        value = float(loss.detach())
        if not math.isfinite(value):
            raise InputError(f"{self.directory}: step {progress.step + 1}: expected a finite loss, found {value}")
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        if config.optimizer.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), config.optimizer.clip_norm)
        self.optimizer.step()
        progress.step += 1
        progress.seconds += time.monotonic() - begun
        progress.recent.append(value)
        if progress.step % config.log_every == 0 or progress.step == config.steps:
            progress.losses.append(float(np.mean(progress.recent)))
            progress.recent = []
        self.on_step(progress.step, config.steps, value)

    def _look(self, margins: np.ndarray | None) -> None:
        """Evaluate on the way, on fewer tokens."""
        evaluation, step = self.config.evaluation, self.progress.step
        if evaluation is None or self.held_out is None or not evaluation.every or step % evaluation.every:
            return
        metrics, _ = evaluate(self.model, self.held_out, min(evaluation.curve_tokens, evaluation.tokens), margins)
        self.progress.curve.append({"step": step, "metrics": vars(metrics)})

    def _result(self, start: TokenMetrics | None, margins: np.ndarray | None) -> TokenResult:
        config, final, teacher = self.config, None, None
        if config.evaluation is not None and self.held_out is not None:
            final, _ = evaluate(self.model, self.held_out, config.evaluation.tokens, margins)
            teacher = teacher_loss(self.held_out, config.evaluation.tokens)
        return TokenResult(
            name=config.run_name,
            objective=config.objective.name,
            settings=config.objective.settings,
            seed=config.seed,
            steps=config.steps,
            training_tokens=config.steps * config.batch_size * (self.cache.length - 1),
            cache_fingerprint=self.cache.cache.fingerprint,
            student_parameters=sum(parameter.numel() for parameter in self.model.parameters()),
            start=start,
            curve=tuple(CurvePoint(point["step"], TokenMetrics(**point["metrics"])) for point in self.progress.curve),
            final=final,
            teacher_loss=teacher,
            seconds=self.progress.seconds,
            training_loss=tuple(self.progress.losses),
        )

    def _save(self) -> None:
        moments = {
            f"{index}.{name}": value
            for index, state in self.optimizer.state_dict()["state"].items()
            for name, value in state.items()
        }
        groups = {"model": dict(self.model.named_parameters()), "optimizer": moments}
        self.checkpoints.save(self.progress.step, groups, {"progress": vars(self.progress)} | self._began_with)

    def _checkpoint(self) -> Checkpoint | None:
        self.checkpoints.sweep()
        found = self.checkpoints.find().checkpoint
        for name, own in self._began_with.items():
            if found is not None and found.values.get(name) != own:
                raise InputError(
                    f"{self.directory}: expected to continue with the {name} that the run began with, found another; "
                    "put it back, take another output, or begin again in an empty directory"
                )
        return found

    def _restore(self, found: Checkpoint) -> None:
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(found.groups["model"][name])
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in found.groups["optimizer"].items():
            index, _, name = key.partition(".")
            state.setdefault(int(index), {})[name] = value
        self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": state})
        self.progress = Progress(**found.values["progress"])


def batch_loss(model: nn.Module, cache: TokenCache, objective: Objective, rows: np.ndarray) -> Tensor:
    """The objective on some blocks of a cache: a mean over all their predictions."""
    documents, numbers = cache.documents[rows], cache.blocks[rows]
    tokens = cache.tokens(documents, numbers)
    logits = student_logits(model, tokens)[..., : cache.num_classes]
    teacher = None
    if "teacher_logits" in objective.needs:
        teacher = cache.read(documents, numbers, tokens).map(lambda values: values.to(logits.device))
    labels = tokens[:, 1:].to(logits.device)
    batch = Batch(student_logits=logits.movedim(-1, 1), labels=labels, teacher_logits=teacher)
    return torch.stack([*objective.losses(batch).values()]).sum()


def rate_factor(step: int, steps: int, optimizer: TokenOptimizerConfig) -> float:
    """The share of the learning rate for a step counted from 0: a linear rise, then a linear fall to zero.

    Example:
        >>> section = TokenOptimizerConfig(warmup=2)
        >>> [rate_factor(step, 6, section) for step in range(6)]
        [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    """
    if step < optimizer.warmup:
        return (step + 1) / optimizer.warmup
    return (steps - step) / max(1, steps - optimizer.warmup)


def _optimizer(model: nn.Module, section: TokenOptimizerConfig) -> torch.optim.Optimizer:
    return torch.optim.AdamW(
        model.parameters(), lr=section.learning_rate, betas=section.betas, weight_decay=section.weight_decay
    )
