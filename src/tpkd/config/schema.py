"""The schema of a run: every key, its type, its default and what it means."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, StrictBool, model_validator

from tpkd.config.data import DataConfig
from tpkd.config.finished import FinishedConfig
from tpkd.config.inputs import TextConfig, ViewsConfig
from tpkd.config.optimizers import OptimizerConfig
from tpkd.config.output import fill_output
from tpkd.config.schedules import ConstantSchedule, ScheduleConfig, StepSchedule
from tpkd.config.section import (
    Count,
    CountOrZero,
    Epochs,
    LocalPath,
    Model,
    ModelOptions,
    Output,
    PlainData,
    PositiveReal,
    ReadablePath,
    Section,
    Seed,
    WeightMap,
)
from tpkd.config.study import StudyConfig
from tpkd.config.tracking import Tracking, translate_tensorboard
from tpkd.config.variants import Variants


class StudentConfig(Section):
    """The network that learns. Its start depends on nothing but this section and the files it names."""

    model: Model
    """`builtin:mlp`, `builtin:resnet20`, `builtin:efficientnet-lite0`, `builtin:bert`, `timm:NAME`, `hf:PATH_OR_ID`."""
    options: ModelOptions = Field({})
    weights: LocalPath | None = None
    """A `.safetensors`, `.pth`, `.pt` or `.bin` file; only tensors are read from the last three."""
    weight_map: WeightMap = Field({})
    """Names in files of weights of another code base -> those of the network: whole names or their first parts, as in
    `{backbone: "", classifier: fc}`; null leaves tensors out."""
    head: Literal["own", "random", "probe"] = "own"
    """`own`: the head of the network or its weights; `random`: the shared random head; `probe`: a logistic regression
    on the initial features of the network."""
    probe_c: PositiveReal = 0.01
    probe_file: LocalPath | None = None
    """File in which the fitted probe is saved and looked up; default: in the run directory."""
    seed: Seed = 0
    """Draws all weights that do not come from a file; separate from the run's seed, so runs share their start."""
    layers: tuple[int, ...] = ()
    """Layers whose pooled features are compared with the teacher's, by objectives that use them."""


class TeacherConfig(Section):
    """The network that teaches: from a cache, or run at every step."""

    model: Model | None = None
    """If omitted, the cache is used as it is, whatever network it was built with."""
    options: ModelOptions = Field({})
    weights: LocalPath | None = None
    """A `.safetensors`, `.pth`, `.pt` or `.bin` file; only tensors are read from the last three."""
    weight_map: WeightMap = Field({})
    """As `student.weight_map`."""
    untrained: bool = False
    """Ask for a teacher whose head or whole network is random; without it such a teacher is refused."""
    head: Literal["own", "random"] = "own"
    """`own`: the head of the network or its weights; `random`: for a network without one, never with weights."""
    seed: Seed = 0
    layers: tuple[int, ...] = ()
    """One per layer of the student; stored in the cache with the logits."""
    views: ViewsConfig | None = None
    """If the teacher needs a different size or normalisation; num_views, seed, pad and flip must match `views`."""
    class_names: LocalPath | None = None
    """A file with the teacher's classes, one per line, if they differ from those of the data."""
    rename: dict[str, str] = Field({})
    """Teacher class -> class of the data, for classes with different names."""
    cache: ReadablePath | None = None
    """The directory of its cache, or an address such as `s3://bucket/cache` to read one that is there; if omitted, the
    teacher runs at every step."""
    cache_dtype: Literal["float16", "float32"] = "float16"
    top_k: Count | None = None
    """How many of its largest classes the cache keeps of each row, with the label and the total of all others; at most
    all classes. Default: all logits. Needs a cache."""
    test_logits: LocalPath | None = None
    """Its logits on the test split, (N, K) in a `.npy`, `.npz`, `.safetensors`, `.pt`, `.csv` or `.parquet` file, if
    there is no model."""
    mixed: Literal["mixture"] | None = None
    """What a cache, which never saw mixed images, is to answer for one: `mixture`, of its answers to both images."""

    @model_validator(mode="after")
    def _names_something(self) -> Self:
        if self.model is None and self.cache is None:
            raise ValueError("expected a model, a cache, or both")
        if self.mixed is not None and self.cache is None:
            raise ValueError("mixed: expected a cache beside it, found none: the model sees the mixed image itself")
        if self.weights is not None and self.head == "random":
            raise ValueError("head: expected own: random would put an untrained head over that of weights")
        if self.untrained and self.weights is not None:
            raise ValueError("untrained: expected false beside weights, found true")
        if self.untrained and self.model is None:
            raise ValueError("untrained: expected false without a model: a cache is taken as it is")
        if self.top_k is not None and self.cache is None:
            raise ValueError(
                "top_k: expected a cache beside it, found none: a teacher that runs at every step gives all classes; "
                "set teacher.cache, or leave top_k out"
            )
        return self


class WeightedTeacherConfig(TeacherConfig):
    """One of several teachers: all that a single one may have but `layers` and `top_k`, and its weight."""

    weight: PositiveReal = 1.0
    """How much it counts among the others; weights are divided by their sum."""

    @property
    def alone(self) -> TeacherConfig:
        """The same teacher without others."""
        return TeacherConfig(**self.model_dump(exclude={"weight"}))


class InitialConfig(Section):
    """The frozen copy of the initial student, which DP-U and DP-S need."""

    cache: LocalPath | None = None
    """If omitted, the copy runs at every step."""
    cache_dtype: Literal["float16", "float32"] = "float32"


class ObjectiveConfig(Section):
    """What is learned from labels and teacher: a name of `tpkd methods` and its settings."""

    name: str
    """A name of `tpkd methods`, or one of `variants`."""
    settings: PlainData = Field({})
    variant: str | None = None
    """The name under `variants` whose settings these are; filled in where `name` was one."""

    @property
    def row(self) -> str:
        """What the run is called beside others: the name of its variant, else of its objective."""
        return self.variant or self.name


class CheckpointConfig(Section):
    """When the state of the run is saved; does not affect results."""

    every: Count = 500
    """Optimiser steps."""
    keep: Count = 2


class EvaluationConfig(Section):
    """The test split, evaluated once training has ended, and the validation part, where there is one."""

    batch_size: Count = 256
    every: CountOrZero = 0
    """Epochs between additional evaluations, for a curve; 0 = none. The test split never decides which student is
    the result."""
    limit: Count | None = None
    """Maximum number of test samples, and of validation samples, for a quick trial."""
    test: bool = True
    """Whether the test split is evaluated; without it, the result is that of the validation part alone, as in a sweep
    of `tpkd compare`."""


class RunConfig(Section):
    """One training run."""

    output: Output
    """The run directory; `{objective}` and `{seed}` are replaced by names and numbers, `{{` and `}}` by braces."""
    data: DataConfig
    limit: Count | None = None
    """Maximum number of training samples, for a quick trial."""
    views: ViewsConfig = ViewsConfig()
    text: TextConfig = TextConfig()
    student: StudentConfig
    teacher: TeacherConfig | None = None
    teachers: tuple[WeightedTeacherConfig, ...] = ()
    """Several teachers in the place of `teacher`; objectives learn from an average of what they say."""
    initial: InitialConfig = InitialConfig()
    objective: ObjectiveConfig
    optimizer: Annotated[OptimizerConfig, Field(discriminator="name")]
    schedule: Annotated[ScheduleConfig, Field(discriminator="name")] = ConstantSchedule()
    seed: Seed = 42
    """Order of samples, choice of views, dropout, and the objective's own networks."""
    by_seed: tuple[Literal["data", "student"], ...] = ()
    """Sections whose own `seed` is that of the run. With `data`, `per_class` draws other samples for every seed; with
    `student`, random weights differ too. Either gives every seed a probe of its own. Default: runs share all of it."""
    epochs: Count
    """The run ends after epochs x samples, in batches that cross from one epoch into the next."""
    batch_size: Count = 64
    """Samples per optimiser step, over all micro-batches and processes."""
    micro_batch_size: Count | None = None
    """Samples per forward pass, per process; default: the whole share of the process."""
    precision: Literal["fp32", "fp16", "bf16"] = "fp32"
    """`fp16` and `bf16` are automatic mixed precision, the first with loss scaling."""
    tf32: bool = False
    clip_norm: PositiveReal | None = None
    """Global norm to which gradients are clipped."""
    device: Literal["auto", "cpu"] = "auto"
    workers: Annotated[int, Field(ge=0, le=1024)] = 0
    """Number of processes that prepare inputs; does not affect results."""
    snapshots: Epochs = ()
    """Epochs after which the student is saved."""
    snapshot_seeds: tuple[Seed, ...] = ()
    """Seeds whose runs save snapshots; default: all. A grid needs only those that a study uses."""
    evaluation: EvaluationConfig = EvaluationConfig()
    selection: Literal["last", "best-validation"] = "last"
    """Which student is the result: that of the last epoch, or the one with the best accuracy on the validation part, of
    the epochs that `evaluation.every` names (0 = all) and the last one."""
    checkpoints: CheckpointConfig = CheckpointConfig()
    finished: FinishedConfig = FinishedConfig()
    log_every: Count = 10
    monitor_every: CountOrZero = 50
    """Steps between measurements of how much of the teacher is blocked on the batch; 0 = never."""
    tracking: Tracking | None = None
    """Services that are told what `metrics.jsonl` says: `tensorboard`, `wandb`, `mlflow` or `trackio`; [] = none.
    Default: TensorBoard if it is installed, otherwise none. Does not affect results."""
    tensorboard: Annotated[StrictBool | None, Field(deprecated="use tracking", exclude=True)] = None
    """The older form of `tracking`: true is [tensorboard], false is []."""
    study: StudyConfig = StudyConfig()
    methods: dict[str, PlainData] = Field({})
    """Overrides (dotted key -> value) for one objective, by its name."""
    variants: Variants = Field({})
    """Objectives with other settings under a name of their own, as further methods of a comparison."""

    @model_validator(mode="before")
    @classmethod
    def _older_keys(cls, data: Any) -> Any:
        return translate_tensorboard(data) if isinstance(data, dict) else data

    @model_validator(mode="before")
    @classmethod
    def _objective_by_name(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("objective"), str):
            return data | {"objective": {"name": data["objective"]}}
        return data

    @model_validator(mode="after")
    def _one_teacher_is_the_teacher(self) -> Self:
        if self.teacher is not None and self.teachers:
            raise ValueError(f"teachers: expected none beside teacher, found {len(self.teachers)}")
        if len(self.teachers) != 1:
            return self
        return self.model_copy(update={"teacher": self.teachers[0].alone, "teachers": ()})

    @model_validator(mode="after")
    def _judges_all_seeds_on_the_same_samples(self) -> Self:
        if "data" in self.by_seed and self.data.held_out:
            found = next(iter(self.data.held_out))
            raise ValueError(f"data.{found}: expected none beside by_seed: [data]; name the parts with data.splits")
        return self

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        late = [epoch for epoch in self.snapshots if epoch > self.epochs]
        if late:
            raise ValueError(f"snapshots: expected epochs up to {self.epochs}, found {late[0]}")
        if isinstance(self.schedule, StepSchedule):
            self.schedule.check_reached(self.epochs)
        for key, teacher in self.named_teachers:
            self._fits_teacher(key, teacher)
        self._check_several()
        layers = (len(self.student.layers), len(self.teacher.layers) if self.teacher else 0)
        if layers[0] and layers[0] != layers[1]:
            raise ValueError(f"teacher.layers: expected one for each of {layers[0]} student.layers, found {layers[1]}")
        return self

    def _fits_teacher(self, key: str, teacher: TeacherConfig) -> None:
        other = teacher.views
        for name in ("num_views", "seed", "pad", "flip"):
            if other and getattr(other, name) != getattr(self.views, name):
                expected = f"{getattr(self.views, name)} as in views"
                raise ValueError(f"{key}.views.{name}: expected {expected}, found {getattr(other, name)}")
        for name in ("mixup", "cutmix"):
            if other and getattr(other, name):
                why = f"views.{name} mixes what both networks see"
                raise ValueError(f"{key}.views.{name}: expected 0, found {getattr(other, name)}: {why}")
        if self.views.mixes and teacher.cache is not None and teacher.mixed is None:
            raise ValueError(
                f"{key}.mixed: missing, and the teacher's cache has no answers to mixed images; mixture takes the "
                f"mixture of its answers to both images, or leave out {key}.cache and the teacher runs at every step"
            )
        if self.data.unlabelled and teacher.top_k is not None:
            raise ValueError(
                f"{key}.top_k: expected none beside data.unlabelled: true: a truncated cache keeps the label's class"
            )

    def _check_several(self) -> None:
        if not self.teachers:
            return
        caches: dict[str, str] = {}
        for key, teacher in self.named_teachers:
            if teacher.layers:
                raise ValueError(f"{key}.layers: expected none, because layers of several teachers have no average")
            if teacher.top_k is not None:
                raise ValueError(
                    f"{key}.top_k: expected none, because an average of several teachers needs all classes"
                )
            if teacher.cache is not None and caches.setdefault(teacher.cache, key) != key:
                raise ValueError(f"{key}.cache: expected a directory of its own, found that of {caches[teacher.cache]}")
        if self.student.layers:
            raise ValueError("student.layers: expected none, because layers of several teachers have no average")

    @property
    def named_teachers(self) -> tuple[tuple[str, TeacherConfig], ...]:
        """Every teacher with the key it stands under: none, `teacher`, or each of `teachers`."""
        if self.teacher is not None:
            return (("teacher", self.teacher),)
        return tuple((f"teachers.{index}", teacher) for index, teacher in enumerate(self.teachers))

    @property
    def has_validation(self) -> bool:
        """Whether a validation part is used: one is named or held out, or the result depends on one."""
        named = self.data.validation is not None or self.data.splits.validation is not None
        return named or self.selection == "best-validation" or not self.evaluation.test

    @property
    def directory(self) -> str:
        """`output` with its placeholders filled in."""
        return fill_output(self.output, {"{objective}": self.objective.row, "{seed}": str(self.seed)})
