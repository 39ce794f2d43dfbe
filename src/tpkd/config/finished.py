"""The section `finished`: what a run keeps on disk once it has its result."""

from typing import Literal

from tpkd.config.section import Section


class FinishedConfig(Section):
    """What a finished run keeps on disk; until then it keeps everything. Does not affect the result."""

    weights: Literal["fp32", "fp16", "bf16"] = "fp32"
    """Precision of the student's weights. Another one than fp32 is evaluated too, and the log and the result say both
    accuracies; weights that do not fit stay in fp32."""
    checkpoints: bool | None = None
    """Whether the checkpoints stay, which hold the state of the optimiser and of which a finished run needs none.
    Default: they stay, but for the cells of `tpkd compare`."""
    snapshots: Literal["state", "weights"] = "state"
    """What stays of a snapshot: the whole state, or the student's weights alone. From weights alone, the studies
    `certificates` and `continuation` go on with a fresh optimiser, and say so."""
