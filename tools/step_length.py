"""Rates at which other methods take steps as long as TPKD's, from committed records: `python tools/step_length.py`.

Under SGD with a constant rate, a step is as long as the gradient. In the first run (results/cpu-vision) the gradients
of KD, DKD and DHKD are longer than TPKD's, so they also moved further. configs/evidence-step-length.yaml repeats that
run with their rates multiplied by the ratio of mean gradient norms. Norms are those of all trained parameters, for DHKD
with its second head; a smaller rate also shrinks the weights less.
"""

import json
from pathlib import Path
from statistics import fmean

RUN = Path(__file__).parents[1] / "results" / "cpu-vision"
RATE = 0.002
"""Of every method in that run."""
SEEDS = (42, 43, 44)
SCALED = ("kd", "dkd", "dhkd")
DIGITS = 4
"""Significant digits of the rates."""


def mean_norm(objective: str, run: Path = RUN) -> float:
    """The mean gradient norm over training and seeds; each line of the log is a mean over 25 steps."""
    norms = []
    for seed in SEEDS:
        with (run / f"{objective}-{seed}" / "metrics.jsonl").open(encoding="utf-8") as lines:
            norms += [line["gradient_norm"] for line in map(json.loads, lines) if line["kind"] == "train"]
    return fmean(norms)


def scaled_rate(objective: str, reference: str = "tpkd", run: Path = RUN) -> float:
    """The rate at which a method's mean step is as long as the reference's."""
    return float(f"{RATE * mean_norm(reference, run) / mean_norm(objective, run):.{DIGITS}g}")


if __name__ == "__main__":
    for name in SCALED:
        norms = f"mean gradient norm {mean_norm(name):.3f}, TPKD's {mean_norm('tpkd'):.3f}"
        print(f"{name}: {norms}, rate {scaled_rate(name)}")
