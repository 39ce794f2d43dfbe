"""The section `study`: the size of the mechanism studies. Defaults are the paper's; reduce them for small data."""

from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, model_validator

from tpkd.config.section import Count, CountOrZero, Epochs, PositiveReal, Section, Seed


class BlockingConfig(Section):
    """`tpkd study blocking`: every view of fixed samples, at every state."""

    states: Epochs = ()
    """Epochs of snapshots; default: all."""
    samples: Count = 2000
    splits: tuple[Literal["train", "test"], ...] = ("train", "test")
    """Which samples: not stated in the paper."""


class ExactHeadConfig(Section):
    """`tpkd study exact-head`: steps of the classifier alone, on frozen features."""

    states: Epochs = ()
    """Epochs of snapshots; default: the first and the last."""
    batches: Count = 32
    batch_size: Count = 64
    step_size: Annotated[float, Field(gt=0, le=0.8)] = 0.01
    """Step in output space; at most 4/5, the range for which descent of the joint potential is stated."""


class CertificatesConfig(Section):
    """`tpkd study certificates`: restricted spectra and pairs of ordinary training iterations."""

    states: Epochs = ()
    """Epochs of snapshots; default: the first and the last."""
    batches: Count = 16
    batch_size: Count = 64
    microbatch: Count = 8
    """Rows per vector-Jacobian product; the pairs use the run's own `micro_batch_size`."""
    rank_tolerance: Annotated[float, Field(ge=0, lt=1)] = 1e-10
    spectral_tolerance: Annotated[float, Field(ge=0, lt=1)] = 1e-12


class ContinuationConfig(Section):
    """`tpkd study continuation`: three objectives from one state, on the same samples."""

    state: Count | None = None
    """Epoch of a snapshot; default: the last."""
    iterations: Count = 128
    observation: Count = 2048
    """Number of samples that are measured and never trained on."""
    points: tuple[CountOrZero, ...] = (0, 1, 8, 32, 64, 128)
    """Iterations after which they are measured; the start and the end always are."""
    repeats: Count = 1
    """How often, each time with samples divided and ordered by another seed; a verdict takes ten."""


class StudyConfig(Section):
    """The mechanism study on the snapshots of a run."""

    seed: Seed = 0
    """Chooses samples and their views."""
    tolerance: NonNegativeFloat = 1e-12
    """Tolerance for rounding in the theory's inequalities."""
    learning_rate: PositiveReal | None = None
    """Of training iterations; default: the base rate of the run, regardless of its schedule."""
    blocking: BlockingConfig = BlockingConfig()
    exact_head: ExactHeadConfig = ExactHeadConfig()
    certificates: CertificatesConfig = CertificatesConfig()
    continuation: ContinuationConfig = ContinuationConfig()

    @model_validator(mode="after")
    def _every_split_once(self) -> Self:
        if len(set(self.blocking.splits)) != len(self.blocking.splits) or not self.blocking.splits:
            raise ValueError(f"blocking.splits: expected train, test or both, found {list(self.blocking.splits)}")
        return self
