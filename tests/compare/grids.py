"""What tests read from the directory of a grid."""

import numpy as np


def logits_of(made, cell):
    """The test logits of a cell."""
    return np.load(made / "students" / f"{cell.name}.npy")
