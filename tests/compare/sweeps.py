"""Small sweeps: records made by hand, and a configuration whose runs take moments."""

import yaml

from tpkd.compare.record import DataFacts, NetworkState
from tpkd.compare.sweep import Trial
from tpkd.compare.sweep_record import SweepRecord, TrialCell
from tpkd.compare.sweep_run import mark_best, summarize_trial
from training.tiny import plain_config

BETA, TEMPERATURE, RATE = "objective.settings.beta", "objective.settings.temperature", "optimizer.learning_rate"


def trial(objective, settings, numbers):
    """A combination with the accuracy and label loss of each seed; None where a seed failed."""
    cells = [
        TrialCell(seed, f"sweep/{objective}/{seed}", "failed", "broken", None, None, None, None)
        if found is None
        else TrialCell(seed, f"sweep/{objective}/{seed}", "finished", None, *found, None, 1.0)
        for seed, found in numbers.items()
    ]
    return summarize_trial(Trial(objective, settings), cells)


def record_of(trials, **fields):
    plain = {
        "name": "by-hand",
        "keys": tuple(dict.fromkeys(key for each in trials for key in each.settings)),
        "seeds": tuple(sorted({cell.seed for each in trials for cell in each.cells})),
        "data": DataFacts("toys", 3, 90, 20, "f" * 64, validation_samples=10),
        "start": NetworkState("builtin:mlp", "0" * 64, 0.25, 2.0),
        "teacher": NetworkState("builtin:mlp", "1" * 64, 0.875, 0.5),
        "selection": "last",
        "methods": {},
        "trials": mark_best(trials),
    }
    return SweepRecord(**(plain | fields))


def write_config(directory, **changes):
    """A configuration with a validation part; its teacher runs at every step."""
    plain = plain_config(directory, output=str(directory / "runs/{objective}-{seed}"), **changes)
    plain["teacher"].pop("cache")
    small = {"epochs": 1, "limit": 64, "snapshots": [1], "monitor_every": 0}
    plain = plain | small | {"data": {"name": "digits", "validation": 0.1}} | changes
    path = directory / "mine.yaml"
    path.write_text(yaml.safe_dump(plain))
    return path
