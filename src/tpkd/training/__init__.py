"""Training: one loop for every objective, exact over micro-batches and processes, resumed bit for bit."""

from tpkd.training.directory import RunResult, read_result
from tpkd.training.loop import StepReport, train
from tpkd.training.own import fit
from tpkd.training.step import NonFiniteError

__all__ = ["NonFiniteError", "RunResult", "StepReport", "fit", "read_result", "train"]
