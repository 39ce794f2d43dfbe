"""The schema of a run: every key, its type, its default and what it means."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from tpkd.config.output import fill_output
from tpkd.config.section import (
    Count,
    CountOrZero,
    Epochs,
    LocalPath,
    ModelOptions,
    NonNegativeReal,
    Output,
    PlainData,
    PositiveReal,
    Real,
    Section,
    Seed,
    Source,
)
from tpkd.config.study import StudyConfig


class ColumnsConfig(Section):
    """The columns of a table; one that is not named is recognised by its usual names."""

    text: str | None = None
    """Default: `text`, `sentence`, `utterance` or `content`."""
    image: str | None = None
    """Encoded images, in the kinds `parquet`, `arrow`, `disk` and `hf`; default: `image` or `img`."""
    label: str | None = None
    """Default: `label`, `labels`, `category`, `intent`, `class`, `target` or `fine_label`."""
    id: str | None = None
    """What tells the samples of a part apart when rows are added or moved; default: the number of the row."""

    @property
    def given(self) -> dict[str, str]:
        """The columns that are named."""
        return self.model_dump(exclude_none=True)


class SplitsConfig(Section):
    """The files of the parts in the folder of the data, or the names of its splits in the library `datasets`."""

    train: LocalPath | None = None
    test: LocalPath | None = None
    validation: LocalPath | None = None

    @property
    def given(self) -> dict[str, str]:
        """The parts that are named."""
        return self.model_dump(exclude_none=True)


class DataConfig(Section):
    """The data set."""

    name: Source
    """A name such as `digits`, `clinc150` or `cifar100`, or a kind and its path: `folder`, `csv`, `tsv`, `jsonl`,
    `parquet` or `arrow`, as in `folder:PATH`; `disk:FOLDER`, written by `save_to_disk`; `hf:ID`, from the hub; or
    `vector:PATH`, features in `.npz`, `.safetensors` or `.npy` files."""
    root: LocalPath | None = None
    """The folder with published data sets; default: the environment variable TPKD_DATA."""
    allow_singletons: bool = False
    """Accept a label that occurs once in a table where others occur often; otherwise it is refused as a likely typo."""
    class_weights: Literal["balanced"] | dict[str, NonNegativeReal] | None = None
    """How much the training samples of each class count: `balanced`, in inverse proportion to how many there are, or
    class -> weight, by default 1; for objectives that take weights."""
    unlabelled: bool = False
    """The training part has no labels, or none that are to be used: for objectives that need none. The test part has
    labels, which are the classes."""
    class_names: LocalPath | None = None
    """All classes of unlabelled data, if the test part does not have each of them: a file with one per line, or weights
    that record them, such as the teacher's."""
    columns: ColumnsConfig = ColumnsConfig()
    splits: SplitsConfig = SplitsConfig()
    test: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Share of each class of the training part that is held out as the test part, for data without one."""
    per_class: Count | None = None
    """Maximum number of training samples of each class, drawn by `seed`; default: all."""
    seed: Seed = 0
    """Draws what `test` and `per_class` take; separate from the run's seed, so runs share their data."""

    @model_validator(mode="after")
    def _has_one_test_part(self) -> Self:
        if self.test is not None and self.splits.test is not None:
            raise ValueError(f"test: expected none beside splits.test, found {self.test}")
        return self

    @model_validator(mode="after")
    def _asks_for_labels_that_are_there(self) -> Self:
        if self.class_names is not None and not self.unlabelled:
            raise ValueError("class_names: expected none without unlabelled: true: the classes are the labels")
        for name in ("class_weights", "test", "per_class"):
            if self.unlabelled and getattr(self, name) is not None:
                why = "training samples without labels have no classes"
                raise ValueError(f"{name}: expected none beside unlabelled: true: {why}")
        return self


class ViewsConfig(Section):
    """How images become inputs: a view recipe. `seed` fixes the set of views; the run's seed chooses among them."""

    num_views: Annotated[int, Field(gt=0, le=10_000)] = 1
    seed: Seed = 0
    pad: Annotated[int, Field(ge=0, le=4096)] = 0
    flip: bool = False
    size: Annotated[int, Field(gt=0, le=8192)] | None = None
    mean: tuple[Real, ...] = (0.0,)
    std: tuple[PositiveReal, ...] = (1.0,)
    scale: PositiveReal = 255.0
    interpolation: Literal["bicubic", "bilinear"] = "bicubic"
    mixup: NonNegativeReal = 0.0
    """Mix training images in pairs, with weights from a Beta(alpha, alpha), and their labels alike; 0 = off."""
    cutmix: NonNegativeReal = 0.0
    """Replace a box of each training image by that of another one, of a size from a Beta(alpha, alpha), and mix labels
    by the share of pixels; 0 = off. With mixup, each batch gets one of the two, with equal chances."""

    @property
    def mixes(self) -> bool:
        """Whether training images are mixed."""
        return bool(self.mixup or self.cutmix)


class TextConfig(Section):
    """How texts become inputs; the tokenizer comes from the model."""

    max_length: Annotated[int, Field(ge=3, le=1_000_000)] = 128
    padding: Literal["max_length", "longest"] = "max_length"


class StudentConfig(Section):
    """The network that learns. Its start depends on nothing but this section and the files it names."""

    model: Source
    """`builtin:mlp`, `builtin:resnet20`, `builtin:bert`, `timm:NAME` or `hf:PATH_OR_ID`."""
    options: ModelOptions = Field({})
    weights: LocalPath | None = None
    """A `.safetensors`, `.pth`, `.pt` or `.bin` file; only tensors are read from the last three."""
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

    model: Source | None = None
    """If omitted, the cache is used as it is, whatever network it was built with."""
    options: ModelOptions = Field({})
    weights: LocalPath | None = None
    """A `.safetensors`, `.pth`, `.pt` or `.bin` file; only tensors are read from the last three."""
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
    cache: LocalPath | None = None
    """The directory of its cache; if omitted, the teacher runs at every step."""
    cache_dtype: Literal["float16", "float32"] = "float16"
    top_k: Count | None = None
    """How many of its largest classes the cache keeps of each row, with the label and the total of all others; at most
    all classes. Default: all logits. Needs a cache."""
    test_logits: LocalPath | None = None
    """Its logits on the test split, (N, K) in a `.npy`, `.npz` or `.safetensors` file, if there is no model."""
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


class InitialConfig(Section):
    """The frozen copy of the initial student, which DP-U and DP-S need."""

    cache: LocalPath | None = None
    """If omitted, the copy runs at every step."""
    cache_dtype: Literal["float16", "float32"] = "float32"


class ObjectiveConfig(Section):
    """What is learned from labels and teacher: a name of `tpkd methods` and its settings."""

    name: str
    settings: PlainData = Field({})


class SGDConfig(Section):
    """Stochastic gradient descent with momentum; weight decay on every parameter."""

    name: Literal["sgd"] = "sgd"
    learning_rate: PositiveReal
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: NonNegativeReal = 0.0


class AdamWeightDecayConfig(Section):
    """Google's Adam for BERT: no bias correction, decay on all but bias and LayerNorm."""

    name: Literal["adam-weight-decay"] = "adam-weight-decay"
    learning_rate: PositiveReal
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    eps: PositiveReal = 1e-6
    weight_decay: NonNegativeReal = 0.01


class ConstantSchedule(Section):
    """The base rate throughout."""

    name: Literal["constant"] = "constant"


class WarmupLinearSchedule(Section):
    """k / warmup of the base rate while k < warmup, then 1 - k / iterations, k counted from 0."""

    name: Literal["warmup-linear"] = "warmup-linear"
    warmup: CountOrZero
    """Iterations."""


class CheckpointConfig(Section):
    """When the state of the run is saved; does not affect results."""

    every: Count = 500
    """Optimiser steps."""
    keep: Count = 2


class EvaluationConfig(Section):
    """The test split, evaluated after the last epoch; the best epoch is never selected."""

    batch_size: Count = 256
    every: CountOrZero = 0
    """Epochs between additional evaluations, for a curve; 0 = none. The result is always that of the last epoch."""
    limit: Count | None = None
    """Maximum number of test samples, for a quick trial."""


class RunConfig(Section):
    """One training run."""

    output: Output
    """The run directory; `{objective}` and `{seed}` are replaced by their values, `{{` and `}}` by braces."""
    data: DataConfig
    limit: Count | None = None
    """Maximum number of training samples, for a quick trial."""
    views: ViewsConfig = ViewsConfig()
    text: TextConfig = TextConfig()
    student: StudentConfig
    teacher: TeacherConfig | None = None
    initial: InitialConfig = InitialConfig()
    objective: ObjectiveConfig
    optimizer: Annotated[SGDConfig | AdamWeightDecayConfig, Field(discriminator="name")]
    schedule: Annotated[ConstantSchedule | WarmupLinearSchedule, Field(discriminator="name")] = ConstantSchedule()
    seed: Seed = 42
    """Order of samples, choice of views, dropout, and the objective's own networks."""
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
    checkpoints: CheckpointConfig = CheckpointConfig()
    log_every: Count = 10
    monitor_every: CountOrZero = 50
    """Steps between measurements of how much of the teacher is blocked on the batch; 0 = never."""
    tensorboard: bool = True
    study: StudyConfig = StudyConfig()
    methods: dict[str, PlainData] = Field({})
    """Overrides (dotted key -> value) for one objective, by its name."""

    @model_validator(mode="before")
    @classmethod
    def _objective_by_name(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("objective"), str):
            return data | {"objective": {"name": data["objective"]}}
        return data

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        late = [epoch for epoch in self.snapshots if epoch > self.epochs]
        if late:
            raise ValueError(f"snapshots: expected epochs up to {self.epochs}, found {late[0]}")
        other = self.teacher.views if self.teacher else None
        for name in ("num_views", "seed", "pad", "flip"):
            if other and getattr(other, name) != getattr(self.views, name):
                expected = f"{getattr(self.views, name)} as in views"
                raise ValueError(f"teacher.views.{name}: expected {expected}, found {getattr(other, name)}")
        for name in ("mixup", "cutmix"):
            if other and getattr(other, name):
                why = f"views.{name} mixes what both networks see"
                raise ValueError(f"teacher.views.{name}: expected 0, found {getattr(other, name)}: {why}")
        if self.views.mixes and self.teacher and self.teacher.cache is not None and self.teacher.mixed is None:
            raise ValueError(
                "teacher.mixed: missing, and the teacher's cache has no answers to mixed images; mixture takes the "
                "mixture of its answers to both images, or leave out teacher.cache and the teacher runs at every step"
            )
        if self.data.unlabelled and self.teacher and self.teacher.top_k is not None:
            raise ValueError(
                "teacher.top_k: expected none beside data.unlabelled: true: a truncated cache keeps the label's class"
            )
        layers = (len(self.student.layers), len(self.teacher.layers) if self.teacher else 0)
        if layers[0] and layers[0] != layers[1]:
            raise ValueError(f"teacher.layers: expected one for each of {layers[0]} student.layers, found {layers[1]}")
        return self

    @property
    def directory(self) -> str:
        """`output` with its placeholders filled in."""
        return fill_output(self.output, {"{objective}": self.objective.name, "{seed}": str(self.seed)})
