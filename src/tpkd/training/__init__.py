"""Training: one loop for every objective, exact over micro-batches and processes, resumed bit for bit."""

from tpkd.theory.monitor import observe
from tpkd.training.checkpoint import Checkpoint, Checkpoints
from tpkd.training.directory import RunResult, read_result
from tpkd.training.evaluation import Evaluation, evaluate
from tpkd.training.loop import StepReport, train
from tpkd.training.optimizer import AdamWeightDecay, build_optimizer
from tpkd.training.run import end_processes
from tpkd.training.schedule import rate_factor
from tpkd.training.step import NonFiniteError, StepOutcome, take_step

__all__ = [
    "AdamWeightDecay",
    "Checkpoint",
    "Checkpoints",
    "Evaluation",
    "NonFiniteError",
    "RunResult",
    "StepOutcome",
    "StepReport",
    "build_optimizer",
    "end_processes",
    "evaluate",
    "observe",
    "rate_factor",
    "read_result",
    "take_step",
    "train",
]
