"""A run before its first step: everything that the loop uses, put together once."""

import copy
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tpkd.config.loading import ConfigError, keyed
from tpkd.config.schema import RunConfig
from tpkd.config.section import SEEDS
from tpkd.data.batches import ModelInputs, Preparation, SampleBatch, TrainingBatches
from tpkd.data.configured import load_data, load_validation
from tpkd.data.dataset import Dataset
from tpkd.data.loading import check_dataset
from tpkd.data.mixing import Mixing, soft_labels
from tpkd.data.slicing import sort_by_length, to_device, trim_padding
from tpkd.errors import did_you_mean, extra
from tpkd.models.classifier import Classifier
from tpkd.models.preparation import student_preparation
from tpkd.models.registry import check_model
from tpkd.models.student import build_student
from tpkd.objectives import Objective, create, describe, names
from tpkd.objectives.base import Batch
from tpkd.teacher.opening import open_initial, open_teacher
from tpkd.teacher.teacher import Teacher
from tpkd.theory.monitor import MIN_CLASSES
from tpkd.training.fitting import check_labelled, check_mixed, check_several, check_truncated
from tpkd.training.optimizer import build_optimizer, layer_scales
from tpkd.training.schedule import check_warmup
from tpkd.training.trackers import check_trackers
from tpkd.training.weights import check_weighted, class_weights_of

_PRECISION = {"fp32": "no", "fp16": "fp16", "bf16": "bf16"}


class TrainingModule(nn.Module):
    """All that learns, as the one module that is wrapped and called: the student, and the objective's own networks."""

    def __init__(self, student: Classifier, own: dict[str, nn.Module]) -> None:
        """Register the objective's own networks, which it calls itself, to be moved, synchronised and optimised."""
        super().__init__()
        self.student = student
        self.own = nn.ModuleDict(own)

    def forward(self, inputs: ModelInputs, layers: tuple[int, ...]) -> dict[str, Any]:
        """Logits, penultimate features and layer features of the student."""
        return vars(self.student.outputs(inputs, layers))  # a dict, because wrappers look for tensors in it


@dataclass(frozen=True)
class Given:
    """What a program brings along instead of naming it in the configuration."""

    data: Mapping[str, Dataset]
    """The parts of the data set, by their names."""
    student: Classifier | None = None
    teacher: Teacher | None = None


@dataclass
class Run:
    """What the loop works with."""

    config: RunConfig
    accelerator: Any
    dataset: Dataset
    test_dataset: Dataset
    preparation: Preparation
    batches: TrainingBatches
    student: Classifier
    """The bare network, for evaluation and files; steps call the wrapped `module`."""
    module: nn.Module
    objective: Objective
    optimizer: torch.optim.Optimizer
    teacher: Teacher | None
    initial: Teacher | None
    class_weights: Tensor | None = None
    """How much a sample of each class counts; None where all count once."""
    validation_dataset: Dataset | None = None

    @property
    def selects(self) -> bool:
        """Whether the result is the best student on the validation part, rather than the last one."""
        return self.config.selection == "best-validation"

    @property
    def can_look(self) -> bool:
        """Whether there are a teacher and labels to look at a batch with, and a relation among incorrect classes."""
        return self.teacher is not None and self.dataset.labelled and self.dataset.num_classes >= MIN_CLASSES

    @property
    def num_steps(self) -> int:
        """Optimiser steps of the whole run."""
        return len(self.batches)

    def samples_after(self, step: int) -> int:
        """How many samples the run has seen after a step, counted from 1."""
        return min(step * self.config.batch_size, self.batches.num_samples)

    def epochs_ended(self, step: int) -> range:
        """The epochs whose last sample a step has seen."""
        before, after = (self.samples_after(count) // len(self.dataset) for count in (step - 1, step))
        return range(before + 1, after + 1)

    def epoch_of(self, step: int) -> int:
        """The epoch of a step: that of its first sample, so that it is one number for the whole batch."""
        return self.samples_after(step - 1) // len(self.dataset) + 1

    def micro_batches(self, step: int, samples: SampleBatch) -> Iterator[SampleBatch]:
        """This process's share of a step in pieces, as many as every other process has."""
        pieces, device = self._pieces(self._batch_size(step)), self.accelerator.device
        dynamic = self.config.text.padding == "longest"
        if dynamic:
            samples = sort_by_length(samples)
        samples = replace(samples, inputs=to_device(samples.inputs, device), labels=samples.labels.to(device))
        for start, stop in pairwise(len(samples) * piece // pieces for piece in range(pieces + 1)):
            piece = samples.take(slice(start, stop))
            yield replace(piece, inputs=trim_padding(piece.inputs)) if dynamic else piece

    def _batch_size(self, step: int) -> int:
        return self.samples_after(step) - self.samples_after(step - 1)

    def _pieces(self, size: int) -> int:
        largest_share: int = -(-size // self.accelerator.num_processes)
        return -(-largest_share // (self.config.micro_batch_size or largest_share))

    def check_shares(self) -> None:
        """Refuse a batch that leaves a micro-batch too few samples; with none, other processes would wait for it."""
        least = self.objective.min_rows
        for step in (1, self.num_steps):
            size = self._batch_size(step)
            if size // self.accelerator.num_processes // self._pieces(size) < least:
                shared = f"{self.accelerator.num_processes} processes in {self._pieces(size)} micro-batches each"
                wish = f", of at least {least} samples for objective {self.objective.name!r}" if least > 1 else ""
                raise ConfigError(f"batch_size: step {step} has {size} samples, too few for {shared}{wish}")


def start_accelerator(config: RunConfig) -> Any:
    """The devices and processes of this run.

    Accumulation stays 1 there: the loop accumulates exactly, by the count of valid labels of the whole batch.
    """
    with extra("train"):
        from accelerate import Accelerator
        from accelerate.state import AcceleratorState
    refuse_sharding()
    AcceleratorState._reset_state()  # an earlier run of this process may have had another precision
    # Explicit, because processes on a machine without an accelerator would otherwise not find each other.
    cpu = config.device == "cpu" or not torch.accelerator.is_available()
    with keyed("precision"):
        accelerator = Accelerator(mixed_precision=_PRECISION[config.precision], cpu=cpu, gradient_accumulation_steps=1)
    torch.set_float32_matmul_precision("high" if config.tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = config.tf32
    if config.precision == "fp16" and accelerator.device.type == "cpu":
        raise ConfigError("precision: fp16 needs an accelerator, expected fp32 or bf16 on a CPU")
    return accelerator


_SHARDING = {
    "ACCELERATE_USE_FSDP": "FSDP",
    "ACCELERATE_USE_DEEPSPEED": "DeepSpeed",
    "ACCELERATE_USE_MEGATRON_LM": "Megatron-LM",
}
"""What accelerate's launcher sets, and what it stands for."""


def refuse_sharding() -> None:
    """Refuse engines that split the student over processes: checkpoints and evaluation need it whole.

    On a machine without GPUs accelerate would leave FSDP out without a word.

    Raises:
        ConfigError: names the engine and what to use instead.
    """
    for variable, engine in _SHARDING.items():
        if os.environ.get(variable, "").lower() in ("1", "true", "yes", "on"):
            raise ConfigError(
                f"{engine}: not supported by tpkd train, which keeps the whole student in every process; launch "
                f"without it (data parallel), or use tpkd_loss in your own {engine} loop (unset {variable})"
            )


def end_processes() -> None:
    """Destroy the process group; without it, the first process to exit may take the others down."""
    from accelerate import PartialState

    PartialState().destroy_process_group()


def check_names(config: RunConfig, given: Given | None = None) -> None:
    """Refuse an objective, setting, data set or network of no such name, before anything is loaded or looked at.

    Names that stand for what is `given` are not looked up.

    Raises:
        ConfigError: names the key and the closest known name, or the library of a tracker that is not installed.
    """
    check_trackers(config.tracking)
    with keyed("objective"):
        known, name = (*names(), *config.variants), config.objective.name
        if name not in known:  # `create` does not know the variants
            raise ConfigError(
                f"objective: name: expected one of {', '.join(known)}, got {name!r}{did_you_mean(name, known)}"
            )
        try:
            objective = create(config.objective.name, **config.objective.settings)
        except TypeError as error:
            raise ConfigError(f"objective.settings: {error}, found {config.objective.settings}") from error
    check_labelled(config, objective)
    if given is None:
        with keyed("data"):
            check_dataset(config.data.name)
    if given is None or given.student is None:
        with keyed("student"):
            check_model(config.student.model)
    for key, teacher in config.named_teachers if given is None or given.teacher is None else ():
        if teacher.model is not None:
            with keyed(key):
                check_model(teacher.model)


def assemble(config: RunConfig, accelerator: Any, directory: Path, given: Given | None = None) -> Run:
    """Build everything a configuration names and check that it fits together, before anything is computed.

    Args:
        config: the run.
        accelerator: its devices and processes.
        directory: where it is kept.
        given: what is used instead of what the configuration names.

    Raises:
        InputError: names the key, file, class or field that does not fit.
    """
    from accelerate.utils import set_seed

    device = accelerator.device
    dataset, test_dataset, validation = _load_parts(config, None if given is None else given.data)
    preparation = student_preparation(config, dataset)
    if given is not None and given.student is not None:
        student = given.student
    else:
        with accelerator.main_process_first():  # the first one fits and publishes a probe, the others read it
            student = build_student(config, dataset, directory=directory, device=device)
    if given is not None and given.teacher is not None:
        teacher: Teacher | None = given.teacher.to(device)
    else:
        teacher = open_teacher(config, dataset, preparation, device)
    objective = build_objective(config, student, teacher)
    initial = None
    if "initial_logits" in objective.needs:
        initial = open_initial(config, dataset, preparation, copy.deepcopy(student), device)
    module = TrainingModule(student, objective.modules())
    module.train()
    with keyed("optimizer.layer_decay"):
        scales = layer_scales(student, config.optimizer.layer_decay)
    optimizer = build_optimizer(config.optimizer, module.to(device), scales)
    wrapped, optimizer = accelerator.prepare(module, optimizer)
    batches = TrainingBatches(
        dataset,
        preparation,
        seed=config.seed,
        batch_size=config.batch_size,
        num_samples=config.epochs * len(dataset),
        process=accelerator.process_index,
        num_processes=accelerator.num_processes,
        mixing=Mixing(config.views.mixup, config.views.cutmix) if config.views.mixes else None,
    )
    run = Run(
        config=config,
        accelerator=accelerator,
        dataset=dataset,
        test_dataset=test_dataset,
        preparation=preparation,
        batches=batches,
        student=student,
        module=wrapped,
        objective=objective,
        optimizer=optimizer,
        teacher=teacher,
        initial=initial,
        class_weights=class_weights_of(config, dataset),
        validation_dataset=validation,
    )
    run.check_shares()
    check_warmup(config.schedule, run.num_steps)
    # Last: what was drawn until here, a probe fitted or only read, must not reach the dropout of the first step.
    # Processes have seeds of their own, counted in a circle because the last one has no next.
    set_seed((config.seed + accelerator.process_index) % SEEDS)
    return run


def _load_parts(config: RunConfig, own: Mapping[str, Dataset] | None) -> tuple[Dataset, Dataset, Dataset | None]:
    """The training, test and validation parts, of the same classes."""
    dataset, test = load_data(config, "train", own), load_data(config, "test", own)
    if dataset.class_names != test.class_names:
        raise ConfigError(f"data: the test split of {dataset.name} has other classes than the training split")
    validation = load_validation(config, own)
    if validation is not None and dataset.class_names != validation.class_names:
        raise ConfigError(f"data: the validation part of {dataset.name} has other classes than the training split")
    return dataset, test, validation


def build_objective(config: RunConfig, student: Classifier, teacher: Teacher | None) -> Objective:
    """The configured objective with its own networks built, drawn by the run's seed.

    Raises:
        ConfigError: an unknown name or setting, or a need that nothing in the configuration meets.
    """
    chosen = config.objective
    defaults = {method.name: method.defaults for method in describe()}.get(chosen.name, {})
    layers = student.layer_sizes
    student_layers = tuple(layers[layer] for layer in config.student.layers)
    sizes: dict[str, Any] = {"feature_size": student.feature_size, "num_classes": student.num_classes}
    if teacher is not None and teacher.layer_sizes and student_layers:
        sizes["layer_sizes"] = tuple(zip(student_layers, teacher.layer_sizes, strict=True))
    known = {name: size for name, size in sizes.items() if name in defaults}
    for name, size in known.items():
        found = chosen.settings.get(name, size)
        if (tuple(map(tuple, found)) if _is_table(found) else found) != size:
            raise ConfigError(f"objective.settings.{name}: expected {size}, as the networks have it, found {found!r}")
    with keyed("objective"), torch.random.fork_rng(devices=()):
        torch.manual_seed(config.seed)
        objective = create(chosen.name, **(known | chosen.settings))
    if "teacher_logits" in objective.needs and teacher is None:
        raise ConfigError(f"teacher: missing, and objective {chosen.name!r} learns from one")
    check_several(objective, teacher)
    if "layer_features" in objective.needs and not student_layers:
        raise ConfigError(f"student.layers: missing, and objective {chosen.name!r} compares layers")
    if "layer_features" in objective.needs and teacher is not None and not teacher.layer_sizes:
        held = (
            "no features of teacher.layers in it" if config.teacher and config.teacher.layers else "no teacher.layers"
        )
        raise ConfigError(f"teacher.cache: {held}, and objective {chosen.name!r} compares layers")
    check_labelled(config, objective)
    check_truncated(config, objective, teacher)
    check_mixed(config, objective)
    check_weighted(config, objective)
    if "features" in objective.needs and not student.has_linear_head:
        raise ConfigError(f"student.model: objective {chosen.name!r} needs one linear head on the features")
    with keyed("objective"):
        copy.deepcopy(objective).losses(_blank_batch(config, sizes))
    return objective


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(row, list) for row in value)


def _blank_batch(config: RunConfig, sizes: dict[str, Any]) -> Batch:
    """Zeros for everything an objective may ask for: whether it takes these classes and sizes at all.

    Two rows, because some normalise over them. Labels are of two classes where images are mixed, because some need
    further classes beside those.
    """
    logits = torch.zeros(2, sizes["num_classes"])
    labels = torch.zeros(2, dtype=torch.int64)
    if config.views.mixes:
        labels = soft_labels(labels, labels + 1, torch.full((2,), 0.5), sizes["num_classes"])
    layers = sizes.get("layer_sizes", ())
    return Batch(
        student_logits=logits,
        labels=labels,
        teacher_logits=logits,
        initial_logits=logits,
        features=torch.zeros(2, sizes["feature_size"]),
        layer_features=tuple(torch.zeros(2, student) for student, _ in layers),
        teacher_layer_features=tuple(torch.zeros(2, teacher) for _, teacher in layers),
        epoch=1,
        num_epochs=config.epochs,
    )
