"""The section `study`: how large the mechanism studies are. Defaults are the paper's; small data scale them down."""

from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, model_validator

from tpkd.config.section import Count, CountOrZero, Epochs, PositiveReal, Section, Seed


class BlockingConfig(Section):
    """`tpkd study blocking`: every view of fixed samples, at every state."""

    states: Epochs = ()
    """Epochs of snapshots; left out, all of them."""
    samples: Count = 2000
    splits: tuple[Literal["train", "test"], ...] = ("train", "test")
    """Which samples: not stated in the paper."""


class ExactHeadConfig(Section):
    """`tpkd study exact-head`: steps of the classifier alone, on frozen features."""

    states: Epochs = ()
    """Epochs of snapshots; left out, the first and the last."""
    batches: Count = 32
    batch_size: Count = 64
    step_size: Annotated[float, Field(gt=0, le=0.8)] = 0.01
    """Of the output; up to 4/5, where the descent of the joint potential is stated."""


class CertificatesConfig(Section):
    """`tpkd study certificates`: restricted spectra and pairs of ordinary training iterations."""

    states: Epochs = ()
    """Epochs of snapshots; left out, the first and the last."""
    batches: Count = 16
    batch_size: Count = 64
    microbatch: Count = 8
    """Rows of a vector-Jacobian product; the pairs keep the run's own `micro_batch_size`."""
    rank_tolerance: Annotated[float, Field(ge=0, lt=1)] = 1e-10
    spectral_tolerance: Annotated[float, Field(ge=0, lt=1)] = 1e-12


class ContinuationConfig(Section):
    """`tpkd study continuation`: three objectives from one state, on the same samples."""

    state: Count | None = None
    """Epoch of a snapshot; left out, the last."""
    iterations: Count = 128
    observation: Count = 2048
    """Samples that are looked at and never learned from."""
    points: tuple[CountOrZero, ...] = (0, 1, 8, 32, 64, 128)
    """Iterations after which they are looked at; the start and the end always are."""


class StudyConfig(Section):
    """The mechanism study on the snapshots of a run."""

    seed: Seed = 0
    """Chooses samples and their views."""
    tolerance: NonNegativeFloat = 1e-12
    """By how much rounding may break an inequality of the theory."""
    learning_rate: PositiveReal | None = None
    """Of training iterations; left out, the base rate of the run, whatever its schedule came to."""
    blocking: BlockingConfig = BlockingConfig()
    exact_head: ExactHeadConfig = ExactHeadConfig()
    certificates: CertificatesConfig = CertificatesConfig()
    continuation: ContinuationConfig = ContinuationConfig()

    @model_validator(mode="after")
    def _every_split_once(self) -> Self:
        if len(set(self.blocking.splits)) != len(self.blocking.splits) or not self.blocking.splits:
            raise ValueError(f"blocking.splits: expected train, test or both, found {list(self.blocking.splits)}")
        return self
