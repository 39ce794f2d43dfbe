"""Settings made by hand: logits by method and seed, packed as an import would."""

import re
from pathlib import Path

import numpy as np
from tools.evidence.setting import PLAN, CellFacts, MethodFacts, SettingRecord

from tpkd.compare.record import CellCurves, FinalState
from tpkd.quality.packed import stack_scores, write_packed
from tpkd.quality.scores import score_rows
from tpkd.quality.temperature import losses_at

METHODS = ("ce", "kd", "tpkd", "tpkd-t4", "tpkd-no-projection-t4")
CLASSES = 8


def make_logits(labels, share, seed, *, scale=1.0):
    """Logits that are right on the given share of the examples: the same ones for every seed but a few."""
    random = np.random.default_rng([seed, 7])
    logits = random.normal(size=(len(labels), CLASSES)) * 0.1
    answers = labels.copy()
    wrong = np.arange(len(labels)) >= share * len(labels) + random.integers(-2, 3)
    answers[wrong] = (labels[wrong] + 1) % CLASSES
    logits[np.arange(len(labels)), answers] += 2.0
    return scale * logits


def write_setting(
    results, name, shares, *, seeds=range(52, 64), rows=2000, start=0.3, blocked=(0.0, 0.4), partial=False
):
    """A setting whose methods have these accuracies; returns its logits by method and seed."""
    labels = np.arange(rows) % CLASSES
    directory = Path(results) / name
    (directory / "examples").mkdir(parents=True, exist_ok=True)
    np.save(directory / "examples" / "labels.npy", labels.astype(np.uint8))
    logits = {method: {seed: make_logits(labels, share, seed) for seed in seeds} for method, share in shares.items()}
    for method, by_seed in logits.items():
        rows_of = {
            seed: (score_rows(each, labels), 1.5, losses_at(each, labels, 1.5)) for seed, each in by_seed.items()
        }
        write_packed(directory / "examples" / f"{method}.npz", stack_scores(rows_of), labels)
    begun = make_logits(labels, start, 0)
    write_packed(
        directory / "examples" / "start.npz", stack_scores({0: (score_rows(begun, labels), None, None)}), labels
    )
    record = SettingRecord(
        "by-hand",
        CLASSES,
        rows,
        tuple(MethodFacts(method, method.upper(), method, {}, 0.1) for method in shares),
        tuple(_cell(method, seed, blocked) for method in shares for seed in seeds),
        (0.25, 0.3),
    )
    (directory / "setting.json").write_text(record.to_json())
    # The plan of the page, but for how many cells there will be: these settings are as finished as they get.
    plan = PLAN.read_text() if partial else re.sub(r", cells: \d+|\n *cells: \d+", "", PLAN.read_text())
    (Path(results) / PLAN.name).write_text(plan)
    return labels, logits | {"start": {0: begun}}


def _cell(method, seed, blocked):
    curves = CellCurves((1, 2), (1.0, 0.5), (2.0, 1.5), (blocked[0], blocked[1] + seed / 1e5))
    return CellFacts(method, seed, 1.0, "0" * 64, curves, FinalState(3, 0.1, 1.0, 2.0 + seed / 1e4, 1.0, 1.0, 0.5))
