"""The sections `views` and `text`: how samples become the inputs of a network."""

from typing import Annotated, Literal

from pydantic import Field

from tpkd.config.section import NonNegativeReal, PositiveReal, Real, Section, Seed


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
