"""Losses and diagnosis through given kernels with whatever a caller may hand over, for test_kernel.py.

python kernel_fuzz.py DIRECTORY SEED CASES: prints the seed of every case before it runs: the last one is to blame.
"""

import random
import sys
import threading

if __name__ == "__main__":  # before anything loads the installed one
    from kernel_build import use_kernels

    use_kernels(sys.argv[1])

import torch
from torch import Tensor

from tpkd.diagnosis.rows import diagnose_rows
from tpkd.objectives import linear_tpkd_loss, top_k_tpkd_loss, tpkd_loss

INTEGERS = (torch.int64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint64)
EDGES = (3, 4, 31, 63, 64, 65, 127, 128, 129, 191, 192, 193, 1999, 2000)
"""Numbers of classes around whole vectors and chunks."""
SPECIAL = (torch.nan, torch.inf, -torch.inf, 3e38, -3e38, 1e-40, 0.0)


def logits(rng: random.Random, shape: list[int], dtype: torch.dtype, wild: bool) -> Tensor:
    generator = torch.Generator().manual_seed(rng.getrandbits(32))
    found = torch.randn(shape, generator=generator) * 10 ** rng.uniform(-3, 3)
    if wild:
        places = torch.rand(shape, generator=generator) < rng.choice((0.01, 0.5, 1.0))
        found = torch.where(places, rng.choice(SPECIAL), found)
    found = found.to(dtype)
    return found[:1].expand(shape) if shape[0] and rng.random() < 0.1 else with_strides(rng, found)


def with_strides(rng: random.Random, tensor: Tensor) -> Tensor:
    """The same numbers elsewhere in memory: with gaps, in another order, at an odd address."""
    kind = rng.randrange(5)
    if tensor.ndim == 0:
        return tensor
    if kind == 1:
        return torch.stack([tensor, tensor], -1)[..., 0]
    if kind == 2 and tensor.ndim > 1:
        return tensor.movedim(1, 0).contiguous().movedim(0, 1)
    if kind == 3:
        return torch.cat([tensor, tensor], -1)[..., : tensor.shape[-1]]
    if kind == 4 and tensor.numel() > 0:
        memory = bytearray(tensor.numel() * tensor.itemsize + 1)
        moved = torch.frombuffer(memory, dtype=tensor.dtype, count=tensor.numel(), offset=1).view(tensor.shape)
        return moved.copy_(tensor)
    return tensor


def labels_for(rng: random.Random, positions: list[int], num_classes: int) -> tuple[Tensor, int, bool]:
    """Labels of any type, what they ignore, and whether all others are classes."""
    dtype = rng.choice(INTEGERS)
    limits = torch.iinfo(dtype)
    generator = torch.Generator().manual_seed(rng.getrandbits(32))
    labels = torch.randint(min(num_classes, limits.max + 1), positions, generator=generator)
    ignored = rng.choice((-100, -100, rng.randrange(num_classes), 2**40, -1))
    flat = labels.view(-1)
    if limits.min <= ignored <= limits.max and flat.numel():
        flat[torch.rand(flat.shape, generator=generator) < rng.choice((0.0, 0.3, 1.0))] = ignored
    if flat.numel() and rng.random() < 0.2:
        wrong = (-1, num_classes, num_classes + 1, -101, 2**31, 2**40, -(2**62), 2**63 - 1)
        candidates = [w for w in wrong if limits.min <= w <= limits.max and w != ignored]
        if candidates:
            flat[rng.randrange(flat.numel())] = rng.choice(candidates)
            return with_strides(rng, labels.to(dtype)), ignored, False
    return with_strides(rng, labels.to(dtype)), ignored, True


def run_case(seed: int) -> None:
    rng = random.Random(seed)
    num_classes = rng.choice((rng.choice(EDGES), rng.randint(3, 40), rng.randint(3, 2000)))
    positions = [rng.choice((0, 1, 2, 3, rng.randint(0, 40)))]
    positions += [rng.randint(0, 4) for _ in range(rng.choice((0, 0, 0, 1, 2)))]
    shape = [positions[0], num_classes, *positions[1:]]
    if rng.random() < 0.1:
        positions, shape = [], [num_classes]
    wild = rng.random() < 0.4
    student = logits(rng, shape, rng.choice((torch.float32, torch.bfloat16)), wild)
    teacher = logits(rng, shape, rng.choice((torch.float32, torch.bfloat16, torch.float16)), wild)
    labels, ignored, good = labels_for(rng, positions, num_classes)
    settings = {"ignore_index": ignored, "reduction": rng.choice(("mean", "sum", "none"))}
    settings["beta"] = rng.choice((0.0, 0.5, 2.0, 1e30))
    settings["temperature"] = rng.choice((1.0, 1.0, 0.25, 4.0, 1e-20, 1e20))
    torch.set_num_threads(rng.choice((1, 2)))
    student.requires_grad_(rng.random() < 0.8)
    try:
        loss = tpkd_loss(student, teacher, labels, **settings)
    except ValueError:
        if good:
            raise
        return
    assert good, f"{seed}: labels that are not classes were taken"
    if student.requires_grad:
        loss.sum().backward()
    if not wild and settings["beta"] < 10 and 0.1 < settings["temperature"] < 10:
        compare(seed, student.detach(), teacher, labels, settings, loss.detach(), student.grad)


def compare(
    seed: int, student: Tensor, teacher: Tensor, labels: Tensor, settings: dict, loss: Tensor, gradient: Tensor | None
) -> None:
    """The same from tensor code in float64: what went wrong silently is wrong too."""
    leaf = student.double().requires_grad_()
    expected = tpkd_loss(leaf, teacher.double(), labels, **settings)
    scale = max(
        1.0, settings.get("temperature", 1.0) ** 2, float(expected.detach().abs().max() if expected.numel() else 1.0)
    )
    torch.testing.assert_close(loss.double(), expected.detach(), rtol=0, atol=1e-4 * scale, msg=f"{seed}: loss")
    if gradient is not None:
        expected.sum().backward()
        atol = (2e-2 if student.dtype == torch.bfloat16 else 1e-4) * max(1.0, settings.get("temperature", 1.0))
        torch.testing.assert_close(gradient.double(), leaf.grad, rtol=0, atol=atol, msg=f"{seed}: gradient")


def run_soft(seed: int) -> None:
    """Probabilities as labels, of which some are none: rows that are negative, do not sum to one, or leave no class."""
    rng = random.Random(seed)
    rows, num_classes = rng.randint(0, 20), rng.choice((*EDGES, 1500))
    student, teacher = torch.randn(2, rows, num_classes, generator=torch.Generator().manual_seed(seed))
    shares, good = torch.zeros(rows, num_classes), True
    for row in range(rows):
        count = rng.choice((0, 1, 1, 2, 3, rng.randint(1, num_classes)))
        shares[row, torch.randperm(num_classes)[:count]] = 1 / max(count, 1)
        good &= count <= num_classes - 2
        if rng.random() < 0.02:
            shares[row, rng.randrange(num_classes)] = rng.choice((torch.nan, torch.inf, -1.0, 7.0, 1e-40))
            good = False
    labels = with_strides(rng, shares.to(rng.choice((torch.float32, torch.float64, torch.bfloat16, torch.float16))))
    leaf = student.requires_grad_()
    torch.set_num_threads(rng.choice((1, 2)))
    try:
        temperature, reduction = rng.choice((1.0, 4.0)), rng.choice(("mean", "none"))
        loss = tpkd_loss(leaf, teacher, labels, temperature=temperature, reduction=reduction)
        loss.sum().backward()
    except ValueError:
        if good:
            raise
        return
    assert leaf.grad is not None
    assert not good or (loss.isfinite().all() and leaf.grad.isfinite().all()), f"{seed}: not finite"


def run_truncated(seed: int) -> None:
    """Truncated teachers: empty places, classes given twice or that do not exist, numbers of all kinds."""
    rng = random.Random(seed)
    rows, num_classes = rng.randint(1, 20), rng.choice(EDGES)
    places = rng.choice((1, 2, 5, num_classes, num_classes + 3))
    wild = rng.random() < 0.5
    student = logits(rng, [rows, num_classes], rng.choice((torch.float32, torch.bfloat16)), wild)
    log_probs = -logits(rng, [rows, places], rng.choice((torch.float32, torch.float16)), wild).abs()
    generator = torch.Generator().manual_seed(seed)
    indices = torch.randint(-1, num_classes, (rows, places), generator=generator)
    good = rng.random() < 0.8
    if not good:
        indices.view(-1)[rng.randrange(indices.numel())] = rng.choice((-2, num_classes, 2**40, -(2**63), 2**63 - 1))
    labels = torch.randint(num_classes, (rows,), generator=generator)
    known = {
        "label_log_probs": rng.choice((None, -torch.rand(rows), torch.full((rows,), torch.nan))),
        "rest_log_probs": rng.choice((None, -torch.rand(rows), torch.full((rows,), -torch.inf))),
    }
    leaf = student.detach().requires_grad_()
    torch.set_num_threads(rng.choice((1, 2)))
    temperature = rng.choice((1.0, 4.0))
    try:
        top_k_tpkd_loss(leaf, log_probs, indices, labels, **known, temperature=temperature).backward()
        parts = [log_probs, indices, *known.values()]
        torch.ops.tpkd.losses_and_directions(student.float(), parts, labels, None, 0.5, 1.0, True, temperature)
    except ValueError:
        if good:
            raise
        return
    assert good, f"{seed}: classes that do not exist were taken"


def run_operator(seed: int) -> None:
    """What a compiled graph calls: labels that nothing has looked at before."""
    rng = random.Random(seed)
    rows, num_classes = rng.randint(1, 20), rng.choice(EDGES)
    student, teacher = torch.randn(2, rows, num_classes)
    labels = torch.randint(num_classes, (rows,))
    labels[rng.randrange(rows)] = rng.choice((-1, num_classes, 2**40, -(2**63), 2**63 - 1))
    try:
        torch.ops.tpkd.losses_and_directions(student, [teacher], labels, None, 0.5, 1.0, True, 1.0)
    except ValueError:
        return
    raise AssertionError(f"{seed}: the operator took labels that are not classes")


def run_linear(seed: int) -> None:
    """Where the direction overwrites the logits."""
    rng = random.Random(seed)
    rows, width, num_classes = rng.randint(0, 30), rng.randint(1, 8), rng.choice(EDGES)
    features, weight = torch.randn(rows, width, requires_grad=True), torch.randn(num_classes, width, requires_grad=True)
    labels, ignored, good = labels_for(rng, [rows], num_classes)
    reduction = rng.choice(("mean", "none"))
    try:
        teacher = torch.randn(rows, num_classes)
        loss = linear_tpkd_loss(features, weight, teacher, labels, ignore_index=ignored, reduction=reduction)
        loss.sum().backward()
    except ValueError:
        if good:
            raise
        return
    assert good, f"{seed}: labels that are not classes were taken"


def run_diagnosis(seed: int) -> None:
    """Rows of the diagnosis, with labels that are classes or not, with and without tables."""
    rng = random.Random(seed)
    rows, num_classes = rng.choice((0, 1, 5, 200)), rng.choice((3, 4, 7, 8, 9, 63, 64, 65, 500))
    wild = rng.random() < 0.5
    dtypes = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    student, teacher = (logits(rng, [rows, num_classes], rng.choice(dtypes), wild) for _ in range(2))
    labels = torch.randint(num_classes, (rows,))
    good = rows == 0 or rng.random() < 0.8
    if not good:
        labels[rng.randrange(rows)] = rng.choice((-1, num_classes, 2**40, -(2**63), 2**63 - 1))
    tables = torch.zeros(3, num_classes, num_classes, dtype=torch.float64) if rng.random() < 0.5 else None
    torch.set_num_threads(rng.choice((1, 2, 5)))
    try:
        found = diagnose_rows(torch.arange(rows), student, teacher, labels, beta=0.5, tables=tables)
    except ValueError:
        if good:
            raise
        return
    assert good
    assert len(found.state.blocked) == rows


def run_with_a_thread_that_changes_labels(calls: int) -> None:
    """Every call returns or refuses; none touches memory that a label of another moment points to."""
    student, teacher = torch.randn(2, 64, 500, generator=torch.Generator().manual_seed(0))
    labels = torch.zeros(64, dtype=torch.long)
    stop = threading.Event()

    def change() -> None:
        while not stop.is_set():
            labels.fill_(2**40)
            labels.zero_()

    refused = 0
    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(calls):
            leaf = student.requires_grad_()
            try:
                tpkd_loss(leaf, teacher, labels)
                torch.ops.tpkd.losses_and_directions(student.detach(), [teacher], labels, None, 0.5, 1.0, True, 1.0)
            except ValueError:
                refused += 1
    finally:
        stop.set()
        thread.join()
    print("refused", refused, "of", calls)


def main() -> None:
    seed, cases = int(sys.argv[2]), int(sys.argv[3])
    for number in range(seed, seed + cases):
        print("seed", number, flush=True)
        run_case(number)
        run_soft(number)
        run_truncated(number)
        run_diagnosis(number)
        if number % 10 == 0:
            run_operator(number)
            run_linear(number)
    print("labels that change", flush=True)
    run_with_a_thread_that_changes_labels(min(cases, 500))
    print("done", flush=True)


if __name__ == "__main__":
    main()
