"""Size and speed of the student and the teacher of a grid, measured once on the machine that compares them."""

import itertools
import math
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tpkd.compare.grid import Grid
from tpkd.compare.owner.record import Latency, NetworkCost, NetworksRecord
from tpkd.compare.record import NetworkState
from tpkd.config.loading import load_config
from tpkd.data.batches import PlainBatches, Preparation, load_batches
from tpkd.data.configured import load_data
from tpkd.data.dataset import Dataset
from tpkd.data.slicing import to_device
from tpkd.errors import InputError
from tpkd.files import file_size, open_safetensors, read_parsed, write_file
from tpkd.models.preparation import student_preparation
from tpkd.models.student import build_student
from tpkd.teacher.network import build_teacher, teacher_preparation
from tpkd.teacher.several import each_alone
from tpkd.teacher.teacher import OnlineTeacher
from tpkd.training.directory import (
    CONFIG_NAME,
    ENVIRONMENT_NAME,
    STUDENT_NAME,
    Environment,
    environment,
    read_result,
)
from tpkd.training.run import start_accelerator

NETWORKS_NAME = "networks.json"
BATCH_SIZES = (1, 64)
LEAST_REPEATS, MOST_REPEATS, MAX_SECONDS = 3, 50, 1.0
"""A network is timed until it was called often enough or long enough, but a few times at least."""


def keep_networks(grid: Grid, start: NetworkState, teacher: NetworkState | None) -> None:
    """Measure the networks of a grid and write their record, unless there is one of the same networks.

    A forward pass is timed in evaluation mode, without gradients, in the precision and with the thread count of this
    process, on prepared inputs that are already on the device. Times depend on the machine and on what else it does.
    """
    path = grid.directory / NETWORKS_NAME
    known = None
    with suppress(InputError):  # a damaged record is replaced
        known = read_parsed(path, NetworksRecord.from_json)
    fingerprints = [start.fingerprint, None if teacher is None or not _has_network(grid) else teacher.fingerprint]
    if known is not None and fingerprints == [each and each.fingerprint for each in (known.student, known.teacher)]:
        return
    config, test = grid.base, load_data(grid.base, "test")
    accelerator = start_accelerator(config)
    student = build_student(config, test, directory=grid.directory, device=accelerator.device)
    taught, cost = None, _measure(student, student, start, test, student_preparation(config, test), accelerator)
    if teacher is not None and _has_network(grid):
        costs = []
        for _, alone in each_alone(config):
            network, preparation = build_teacher(alone, test), teacher_preparation(alone, test)
            costs.append(_measure(network, network.model, teacher, test, preparation, accelerator))
        taught = together(costs)
    device = environment(accelerator.device, 1).device
    record = NetworksRecord(device, torch.get_num_threads(), config.precision, cost, taught)
    write_file(path, record.to_json())


def together(costs: Sequence[NetworkCost]) -> NetworkCost:
    """The cost of several teachers, all of which answer: sums of sizes and times."""
    latencies = []
    for group in zip(*(cost.latencies for cost in costs), strict=True):
        times = [each.milliseconds for each in group if each.milliseconds is not None]
        total = sum(times) if len(times) == len(group) else None
        latencies.append(Latency(group[0].batch_size, total, min(each.repeats for each in group)))
    sizes = sum(cost.parameters for cost in costs), sum(cost.bytes for cost in costs)
    return NetworkCost(costs[0].model, costs[0].fingerprint, *sizes, tuple(latencies))


def read_networks(directory: Path) -> NetworksRecord | None:
    """What is known about the networks of a comparison or run; of a single run, the size of its student alone.

    Raises:
        InputError: a file is damaged.
    """
    record = read_parsed(directory / NETWORKS_NAME, NetworksRecord.from_json)
    found = read_parsed(directory / ENVIRONMENT_NAME, Environment.from_json)
    result, weights = read_result(directory), directory / STUDENT_NAME
    if record is not None or found is None or result is None or not weights.exists():
        return record
    config = load_config(directory / CONFIG_NAME)
    with open_safetensors(weights) as archive:
        shapes = [archive.get_slice(name).get_shape() for name in sorted(archive.keys())]
    numbers = sum(math.prod(shape) for shape in shapes)
    cost = NetworkCost(config.student.model, result.student_fingerprint, numbers, file_size(weights), ())
    return NetworksRecord(found.device, found.threads, config.precision, cost, None)


def _has_network(grid: Grid) -> bool:
    teachers = grid.base.named_teachers
    return bool(teachers) and all(teacher.model is not None for _, teacher in teachers)


@torch.no_grad()
def _measure(
    network: Callable[[Any], Any] | OnlineTeacher,
    module: nn.Module,
    state: NetworkState,
    dataset: Dataset,
    preparation: Preparation,
    accelerator: Any,
) -> NetworkCost:
    module.to(accelerator.device).eval()
    latencies = []
    for size in BATCH_SIZES:
        # Different samples in turn: the time of a text depends on its length.
        batches = PlainBatches(dataset, preparation, batch_size=size)
        loaded = load_batches(batches, stop=min(len(batches), BATCH_SIZES[-1] // size), workers=0)
        inputs = [(to_device(batch.inputs, accelerator.device), len(batch)) for batch in loaded]
        try:
            milliseconds, repeats = time_calls(network, inputs, accelerator)
        except (torch.OutOfMemoryError, MemoryError):  # the grid is finished, and must not fail for this
            milliseconds, repeats = None, 0
        latencies.append(Latency(inputs[0][1], milliseconds, repeats))
    module.cpu()
    tensors = [*module.parameters(), *module.buffers()]
    return NetworkCost(
        model=state.model,
        fingerprint=state.fingerprint,
        parameters=sum(parameter.numel() for parameter in module.parameters()),
        bytes=sum(tensor.numel() * tensor.element_size() for tensor in tensors),
        latencies=tuple(latencies),
    )


def time_calls(network: Callable[[Any], Any], inputs: list[tuple[Any, int]], accelerator: Any) -> tuple[float, int]:
    """Median milliseconds per sample of a forward pass, and the number of passes.

    Args:
        network: what is called.
        inputs: prepared batches and their sizes, taken in turn; the first is also called once before the clock starts.
        accelerator: gives the precision.
    """
    times: list[float] = []
    per_sample: list[float] = []
    with accelerator.autocast():
        _finish(network(inputs[0][0]))
        for batch, size in itertools.cycle(inputs):
            begin = time.perf_counter()
            _finish(network(batch))
            times.append(time.perf_counter() - begin)
            per_sample.append(1000 * times[-1] / size)
            enough = len(times) >= MOST_REPEATS or sum(times) > MAX_SECONDS
            if len(times) >= LEAST_REPEATS and enough:
                return statistics.median(per_sample), len(times)
    raise AssertionError("an endless cycle ended")


def _finish(logits: torch.Tensor) -> None:
    """Wait for the device: a GPU returns before it has computed."""
    if logits.device.type != "cpu":
        torch.accelerator.synchronize()
