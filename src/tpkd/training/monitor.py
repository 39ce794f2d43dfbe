"""The monitor of the loop is that of the theory: a loop of one's own calls it without the `train` extra."""

from tpkd.theory.monitor import MIN_CLASSES, observe

__all__ = ["MIN_CLASSES", "observe"]
