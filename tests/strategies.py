"""Generated examples: logits of every kind that matters, and the paper's tight constructions with their answers."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor

from tpkd.geometry import TopK

INTEGER_TYPES = (
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint16, torch.uint32, torch.uint64),
)
KINDS = ("random", "ties", "equal-conditional", "blocked", "certain", "certain-both", "wrong", "tiny", "huge", "sparse")


def labels_of_type(dtype: torch.dtype, count: int, num_classes: int) -> Tensor:
    """As many classes as the type can name, the largest, 156 (-100 in eight bits) and 0 among them."""
    most = min(num_classes - 1, torch.iinfo(dtype).max)
    labels = torch.linspace(0, most, count).long()
    labels[1] = min(most, 156)
    return labels.to(dtype)


@dataclass(frozen=True)
class Pairs:
    """A batch of students, teachers and labels; iterating gives what every function takes."""

    student: Tensor
    teacher: Tensor
    labels: Tensor

    def __iter__(self):
        return iter((self.student, self.teacher, self.labels))


def make_pairs(kind: str, count: int, num_classes: int, seed: int, dtype: torch.dtype = torch.float64) -> Pairs:
    """`count` pairs of one kind, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed * 1009 + num_classes)
    student = torch.randn(count, num_classes, generator=generator, dtype=torch.float64)
    teacher = torch.randn(count, num_classes, generator=generator, dtype=torch.float64)
    labels = torch.randint(num_classes, (count,), generator=generator)
    scale = 10 ** (torch.rand(count, 1, generator=generator, dtype=torch.float64) * 2 - 1)
    lead = 5 + 200 * torch.rand(count, 1, generator=generator, dtype=torch.float64)
    at_label = labels.unsqueeze(-1)
    if kind == "random":
        student, teacher = student * scale, teacher * scale.flip(0)
    elif kind == "ties":
        student, teacher = student.round(), teacher.round()
    elif kind == "equal-conditional":
        teacher = student + 3.0
        teacher = teacher.scatter_add(-1, at_label, lead / 50)
    elif kind == "blocked":
        student, teacher = blocked_pairs(student, teacher, labels)
    elif kind == "certain":
        student = student.scatter(-1, at_label, student.amax(-1, keepdim=True) + lead)
    elif kind == "certain-both":
        student = student.scatter(-1, at_label, student.amax(-1, keepdim=True) + lead)
        teacher = teacher.scatter(-1, at_label, teacher.amax(-1, keepdim=True) + lead.flip(0))
    elif kind == "wrong":
        student = student.scatter(-1, at_label, student.amin(-1, keepdim=True) - lead)
    elif kind == "tiny":
        student, teacher = student * 1e-3, teacher * 1e-3
    elif kind == "huge":
        student, teacher = student * 1e3, teacher * 1e3
    elif kind == "sparse":
        student = torch.where(torch.rand(student.shape, generator=generator) < 0.2, student * 20, 0.0)
        teacher = torch.where(torch.rand(teacher.shape, generator=generator) < 0.2, teacher * 20, 0.0)
    else:
        raise AssertionError(kind)
    return Pairs(student.to(dtype), teacher.to(dtype), labels)


def blocked_pairs(student: Tensor, teacher: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Raise each student's label logit until every other probability is strictly below the teacher's (appendix A.2)."""
    at_label = labels.unsqueeze(-1)
    log_t = teacher.log_softmax(-1)
    without = student.scatter(-1, at_label, -torch.inf)
    # log p_j = z_j - lse(z) <= log t_j for all j: the label logit must reach max_j (z_j - log t_j).
    needed = (without - log_t).amax(-1, keepdim=True)
    return student.scatter(-1, at_label, needed + 0.1), teacher


def all_kinds(count: int, num_classes: int, seed: int, dtype: torch.dtype = torch.float64) -> Pairs:
    """`count` pairs, an equal share of every kind."""
    each = -(-count // len(KINDS))
    batches = [make_pairs(kind, each, num_classes, seed + i, dtype) for i, kind in enumerate(KINDS)]
    return Pairs(*(torch.cat(part) for part in zip(*batches, strict=True)))


def logits_from(confidence: float, conditional: Tensor, label: int) -> Tensor:
    """Log-probabilities of the prediction (rho, (1 - rho) r)."""
    rest = (1 - confidence) * conditional
    return torch.cat([rest[:label], torch.tensor([confidence], dtype=rest.dtype), rest[label:]]).log()


@dataclass(frozen=True)
class Tight:
    """A construction of the paper where a bound is attained."""

    student: Tensor
    teacher: Tensor
    label: int
    total_variation: float
    compensation: float


def one_positive_deviation(num_classes: int, size: float = 1e-3, confidence: float = 0.9) -> Tight:
    """q exceeds r on one class alone: l = TV / 2, retention = gamma_K and w_cond = gamma_K u (appendices B.2, B.3)."""
    n = num_classes - 1
    r = torch.full((n,), 1 / n, dtype=torch.float64)
    difference = torch.full((n,), -size / n / (n - 1), dtype=torch.float64)
    difference[0] = size / n
    total = size / n
    return Tight(logits_from(confidence, r, 0), logits_from(0.5, r + difference, 0), 0, total, total / 2)


def one_negative_deviation(num_classes: int, size: float = 1e-3, confidence: float = 0.9) -> Tight:
    """q exceeds r equally on all classes but one: l = TV / (K - 1) (appendix B.2)."""
    n = num_classes - 1
    r = torch.full((n,), 1 / n, dtype=torch.float64)
    difference = torch.full((n,), size / n / (n - 1), dtype=torch.float64)
    difference[-1] = -size / n
    total = size / n
    return Tight(logits_from(confidence, r, 0), logits_from(0.5, r + difference, 0), 0, total, total / n)


@st.composite
def pairs(draw: st.DrawFn, max_classes: int = 40) -> Pairs:
    """A small batch of any kind, size and seed; hypothesis shrinks towards few classes and the plain kind."""
    kind = draw(st.sampled_from(KINDS))
    num_classes = draw(st.integers(3, max_classes))
    return make_pairs(kind, draw(st.integers(1, 5)), num_classes, draw(st.integers(0, 2**20)))


def one_hot(labels: Tensor, num_classes: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Labels as probabilities."""
    return torch.nn.functional.one_hot(labels, num_classes).to(dtype)


def soft_labels(labels: Tensor, num_classes: int, num_correct: int, seed: int) -> Tensor:
    """Random weights on each label's class and on `num_correct - 1` others."""
    generator = torch.Generator().manual_seed(seed)
    order = (
        torch.rand(len(labels), num_classes, generator=generator).scatter(-1, labels.unsqueeze(-1), -1.0).argsort(-1)
    )
    weights = torch.rand(len(labels), num_correct, generator=generator, dtype=torch.float64) + 0.05
    weights = weights / weights.sum(-1, keepdim=True)
    return torch.zeros(len(labels), num_classes, dtype=torch.float64).scatter(-1, order[:, :num_correct], weights)


def make_sets(kind: str, count: int, num_classes: int, num_correct: int, seed: int) -> Pairs:
    """`make_pairs` with soft labels on `num_correct` classes each."""
    student, teacher, labels = make_pairs(kind, count, num_classes, seed)
    return Pairs(student, teacher, soft_labels(labels, num_classes, num_correct, seed))


def truncate(teacher: Tensor, labels: Tensor, k: int, *, with_label: bool = True, with_rest: bool = True) -> TopK:
    """The k largest log-probabilities of a teacher; the label's, and the rest's from before anything was cut."""
    log_probs = teacher.log_softmax(-1)
    kept = log_probs.topk(k)
    at_label = labels.unsqueeze(-1)
    given = torch.zeros_like(log_probs, dtype=torch.bool).scatter(-1, kept.indices, True)
    if with_label:
        given = given.scatter(-1, at_label, True)
    rest = log_probs.masked_fill(given, -torch.inf).logsumexp(-1)
    label = log_probs.gather(-1, at_label).squeeze(-1) if with_label else None
    return TopK(kept.values, kept.indices, label, rest if with_rest else None)


def direction_pair(difference: Tensor, num_correct: int, confidence: float = 0.9) -> Pairs:
    """A uniform student and a teacher whose r - q is given and small; the first `num_correct` classes are right."""
    n = len(difference)
    r = torch.full((n,), 1 / n, dtype=torch.float64)
    correct = torch.full((num_correct,), 1 / num_correct, dtype=torch.float64)
    student, teacher = (
        torch.cat([mass * correct, (1 - mass) * others]).log().unsqueeze(0)
        for mass, others in ((confidence, r), (0.5, r - difference))
    )
    return Pairs(student, teacher, torch.cat([correct, torch.zeros(n, dtype=torch.float64)]).unsqueeze(0))
