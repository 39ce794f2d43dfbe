"""Statistics over seeds: means, sample standard deviations, paired differences and their t-intervals."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields

from tpkd.compare.record import Cell, FinalState, MethodSummary, PairedDifference

CONFIDENCE_LEVEL = 0.95


def mean_interval(values: Sequence[float], level: float = CONFIDENCE_LEVEL) -> tuple[float, float] | None:
    """The t-interval of a mean; None with fewer than two values.

    Example:
        >>> low, high = mean_interval([1.0, 2.0, 3.0])
        >>> round(low, 3), round(high, 3)
        (-0.484, 4.484)
    """
    if len(values) < 2:
        return None
    from scipy.stats import t  # takes half a second to import, and only intervals need it

    quantile = float(t.ppf((1 + level) / 2, len(values) - 1))
    half = quantile * statistics.stdev(values) / math.sqrt(len(values))
    middle = statistics.fmean(values)
    return middle - half, middle + half


def paired_difference(
    reference: str, values: Mapping[int, float], references: Mapping[int, float]
) -> PairedDifference | None:
    """Values minus the references with the same seed; None where no seed has both.

    Example:
        >>> paired_difference("kd", {42: 0.75, 43: 0.5}, {42: 0.5, 44: 0.5}).differences
        (0.25,)
    """
    seeds = tuple(sorted(values.keys() & references.keys()))
    if not seeds:
        return None
    differences = tuple(values[seed] - references[seed] for seed in seeds)
    low, high = mean_interval(differences) or (None, None)
    return PairedDifference(reference, seeds, differences, statistics.fmean(differences), low, high)


def summarize_methods(
    cells: Sequence[Cell],
    objectives: Sequence[str],
    references: Sequence[str] = ("kd", "ce", "tpkd"),
) -> tuple[MethodSummary, ...]:
    """Every objective over its finished seeds, against the references by seed.

    Args:
        cells: all cells of the grid, in any state; objectives may have different seeds.
        objectives: the rows, in order.
        references: the objectives to compare the others with.
    """
    finished: dict[str, dict[int, Cell]] = {objective: {} for objective in objectives}
    for cell in cells:
        if cell.status == "finished":
            finished[cell.objective][cell.seed] = cell
    planned = {name: sorted(cell.seed for cell in cells if cell.objective == name) for name in objectives}
    return tuple(_summarize(objective, finished, planned[objective], references) for objective in objectives)


def _summarize(
    objective: str, finished: Mapping[str, Mapping[int, Cell]], planned: Sequence[int], references: Sequence[str]
) -> MethodSummary:
    cells = [finished[objective][seed] for seed in planned if seed in finished[objective]]
    accuracies = {name: {seed: cell.accuracy or 0.0 for seed, cell in finished[name].items()} for name in finished}
    values = [accuracies[objective][cell.seed] for cell in cells]
    validated = [cell.validation_accuracy for cell in cells if cell.validation_accuracy is not None]
    low, high = mean_interval(values) or (None, None)
    others = [name for name in references if name != objective and name in finished]
    pairs = (paired_difference(name, accuracies[objective], accuracies[name]) for name in others)
    return MethodSummary(
        objective=objective,
        seeds=tuple(cell.seed for cell in cells),
        missing_seeds=tuple(seed for seed in planned if seed not in finished[objective]),
        accuracies=tuple(values),
        mean=statistics.fmean(values) if values else None,
        standard_deviation=statistics.stdev(values) if len(values) > 1 else None,
        low=low,
        high=high,
        versus=tuple(pair for pair in pairs if pair is not None),
        seconds=_mean(cell.seconds for cell in cells),
        final=_mean_final([cell.final for cell in cells if cell.final is not None]),
        validation_mean=_mean(validated),
        validation_standard_deviation=statistics.stdev(validated) if len(validated) > 1 else None,
    )


def _mean_final(states: Sequence[FinalState]) -> dict[str, float | None]:
    if not states:
        return {}
    values = {field: [getattr(state, field.name) for state in states] for field in fields(FinalState)}
    # Cells from before a field was added lack it: a mean over the other seeds would not compare like with like.
    return {
        field.name: None if field.default is None and None in found else _mean(found) for field, found in values.items()
    }


def _mean(values: Iterable[float | None]) -> float | None:
    """The mean of the values that are not None; None if all are."""
    found = [value for value in values if value is not None]
    return statistics.fmean(found) if found else None
