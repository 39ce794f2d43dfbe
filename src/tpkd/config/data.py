"""The section `data` of a configuration: which samples, of which columns and parts, and how many."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tpkd.config.section import Count, DataSource, LocalPath, NonNegativeReal, Section, Seed


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

    name: DataSource
    """A name such as `digits`, `clinc150` or `cifar100`, or a kind and its path: `folder`, `csv`, `tsv`, `jsonl`,
    `parquet` or `arrow`, as in `folder:PATH`; `disk:FOLDER`, written by `save_to_disk`; `hf:ID`, from the hub; or
    `vector:PATH`, features in `.npz`, `.safetensors` or `.npy` files. A path may be an address: `csv:s3://BUCKET/x`."""
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
    validation: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Share of each class of the training part that is held out as the validation part, whatever `test` takes."""
    per_class: Count | None = None
    """Maximum number of training samples of each class, drawn by `seed`; default: all."""
    except_per_class: Count | None = None
    """Leave out as many training samples of each class: those that `per_class` draws with the same seed. The rest, or
    what `per_class` draws of it, is for a teacher that must not see the samples of its students."""
    seed: Seed = 0
    """Draws what `test`, `validation` and `per_class` take; separate from the run's seed, so runs share their data."""

    @model_validator(mode="after")
    def _has_one_part_of_each_kind(self) -> Self:
        for name, share in self.held_out.items():
            if name in self.splits.given:
                raise ValueError(f"{name}: expected none beside splits.{name}, found {share}")
        if sum(self.held_out.values()) >= 1:
            found = " and ".join(f"{name} {share:g}" for name, share in self.held_out.items())
            raise ValueError(f"validation: expected shares that leave something to train on, found {found}")
        return self

    @model_validator(mode="after")
    def _asks_for_labels_that_are_there(self) -> Self:
        if self.class_names is not None and not self.unlabelled:
            raise ValueError("class_names: expected none without unlabelled: true: the classes are the labels")
        for name in ("class_weights", "test", "validation", "per_class", "except_per_class"):
            if self.unlabelled and getattr(self, name) is not None:
                why = "training samples without labels have no classes"
                raise ValueError(f"{name}: expected none beside unlabelled: true: {why}")
        return self

    @property
    def held_out(self) -> dict[str, float]:
        """The shares of the training part that are held out, by the part that they become."""
        return self.model_dump(include={"test", "validation"}, exclude_none=True)
