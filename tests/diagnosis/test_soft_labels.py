"""Labels that are probabilities: every number is that of the theory, example by example."""

from dataclasses import astuple, replace

import numpy as np
import pytest
import torch

from diagnosis.files_of import write_files
from tpkd.diagnosis.inputs import open_inputs
from tpkd.diagnosis.run import LARGEST_PAIRS, diagnose_files
from tpkd.errors import InputError
from tpkd.geometry import retention_bound, split
from tpkd.theory import diagnose, frontier

K = 9


def soft_of(y, seed=0, most=4):
    """One to `most` correct classes for each example, the label among them but not always with the largest share."""
    rng = np.random.default_rng(seed)
    soft = np.zeros((len(y), K))
    for row, label in enumerate(y):
        others = rng.permutation([j for j in range(K) if j != label])[: rng.integers(0, most)]
        soft[row, [label, *others]] = rng.dirichlet(np.ones(1 + len(others)))
    return soft


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    files = write_files(tmp_path_factory.mktemp("soft"), examples=150, num_classes=K)
    soft = soft_of(files.y)
    # Some students give their correct classes nearly everything, so that some are blocked.
    z = files.z + 4 * (soft > 0) * np.linspace(0, 2, len(soft))[:, None]
    np.save(files.student, z)
    np.save(files.labels, soft)
    record = diagnose_files(open_inputs([files.student], files.teacher, files.labels), block_elements=20 * K)
    inputs = [torch.from_numpy(array).double() for array in (z, files.zt, soft)]
    return inputs, [diagnose(*(each[i : i + 1] for each in inputs)) for i in range(len(soft))], record


def mean(states, name):
    return np.mean([getattr(state, name).item() for state in states])


def test_means_equal_a_call_of_the_theory_for_each_example(case):
    _, states, record = case
    (student,) = record.students
    blocked = [state for state in states if state.blocked.item()]
    assert 5 < len(blocked) < 145
    assert student.blocked_examples == len(blocked)
    assert student.bounds is None
    for name, value in student.all.items():
        assert value == pytest.approx(mean(states, name), rel=1e-11), name
    for name, value in student.blocked.items():
        assert value == pytest.approx(mean(blocked, name), rel=1e-11), name


def test_the_teacher_kl_has_three_parts(case):
    (z, zt, soft), _, record = case
    parts = record.students[0].decomposition
    total = parts.confidence + parts.conditional + parts.inside
    assert total == pytest.approx(record.students[0].all["imitation_loss"], rel=1e-11)
    assert parts.conditional_share == pytest.approx(parts.conditional / total)
    correct = soft > 0
    inside = []
    for row in range(len(soft)):
        log_p, log_t = (x[row].log_softmax(-1)[correct[row]] for x in (z, zt))
        inside.append((log_t.exp() * (log_t.log_softmax(-1) - log_p.log_softmax(-1))).sum().item())
    assert parts.inside == pytest.approx(np.mean(inside), rel=1e-10)


def test_tables_go_by_the_largest_share(case):
    (z, zt, soft), states, record = case
    (student,) = record.students
    main = soft.argmax(-1).numpy()
    for part in student.classes:
        own = [state for state, label in zip(states, main, strict=True) if label == part.index]
        assert part.examples == len(own)
        assert part.transfer_cost == pytest.approx(mean(own, "transfer_cost"), rel=1e-11)
    assert student.competence.teacher_accuracy == (zt.argmax(-1).numpy() == main).mean()
    assert student.competence.student_accuracy == (z.argmax(-1).numpy() == main).mean()
    left = np.zeros((K, K))
    log_r, log_q = (split(x, soft).log_conditional for x in (z, zt))
    for row, label in enumerate(main):
        for j in np.flatnonzero(soft[row].numpy() == 0):
            left[label, j] += (log_q[row, j].exp() * (log_q[row, j] - log_r[row, j])).item()
    expected = np.sort(left[left > 0])[::-1][:LARGEST_PAIRS] / len(soft)
    assert [pair.left for pair in student.pairs] == pytest.approx(expected.tolist(), rel=1e-9)
    for pair in student.pairs:
        assert pair.left == pytest.approx(left[int(pair.label), int(pair.competitor)] / len(soft), rel=1e-9)


def test_the_frontier_is_that_of_the_sets(case):
    inputs, _, record = case
    curve = record.students[0].frontier
    for budget, value in list(zip(curve.budgets, curve.values, strict=True))[::8]:
        assert value == pytest.approx(frontier(*inputs, budget).value.mean().item(), rel=1e-10)


def test_what_is_said_of_the_labels(case):
    (_, _, soft), _, record = case
    counts = (soft > 0).sum(-1)
    assert record.soft_labels.most_correct == counts.max().item() == 4
    assert record.soft_labels.mean_correct == pytest.approx(counts.double().mean().item())
    entropy = -torch.xlogy(soft, soft).sum(-1).mean().item()
    assert record.soft_labels.entropy == pytest.approx(entropy)
    assert record.students[0].all["label_loss"] >= entropy
    bounds = [retention_bound(K, m) for m in counts.unique().tolist()]
    assert record.students[0].retention_bound == min(bounds)
    assert (torch.stack([state.retention for state in case[1]]) >= min(bounds) - 1e-12).all()


def test_examples_name_the_correct_classes_and_compete_with_the_others(case):
    (_, _, soft), _, record = case
    for example in record.students[0].costliest:
        shares = soft[example.row]
        correct = [str(j) for j in shares.argsort(descending=True).tolist() if shares[j] > 0]
        more = [f"{len(correct) - 3} more"] if len(correct) > 3 else []
        assert example.label == " + ".join([*correct[:3], *more])
        competitors = {item.name for item in (*example.student_competitors, *example.teacher_competitors)}
        assert competitors
        assert not competitors & set(correct)


def test_shares_of_one_class_are_labels(tmp_path):
    files = write_files(tmp_path, num_classes=K)
    expected = diagnose_files(open_inputs([files.student], files.teacher, files.labels)).students[0]
    np.save(files.labels, np.eye(K, dtype=np.float16)[files.y])
    record = diagnose_files(open_inputs([files.student], files.teacher, files.labels))
    found = record.students[0]
    assert found.decomposition.inside == 0.0
    plain = replace(found, decomposition=replace(found.decomposition, inside=None))
    assert plain.competence == expected.competence
    assert plain.costliest == expected.costliest
    # One runs through tensor code, the other through the kernel, where there is one.
    for one, other in zip(plain.classes, expected.classes, strict=True):
        assert one.name == other.name
        assert astuple(one)[2:] == pytest.approx(astuple(other)[2:], rel=1e-12)
    assert plain.frontier == expected.frontier
    assert plain.all == pytest.approx(expected.all, rel=1e-12, abs=1e-13)
    assert record.soft_labels.entropy == 0.0


def spoil(change):
    def make(soft):
        soft[117] = change(soft[117].copy())
        return soft

    return make


BAD = {
    "negative": (
        spoil(lambda s: s - 0.5),
        r"labels\.npy: row 117: expected probabilities, .* least entry -0\.5 and sum",
    ),
    "sum": (spoil(lambda s: s * 1.01), r"row 117: .* sum 1\.01"),
    "nan": (spoil(lambda s: s * np.nan), r"row 117: expected probabilities, .* nan"),
    "zeros": (spoil(lambda s: s * 0), r"row 117: .* found only zeros: leave the row out of all files"),
    "smoothed": (
        spoil(lambda s: 0.9 * s + 0.1 / K),
        r"row 117: expected at least 2 classes of probability 0, found 0: label smo",
    ),
    "one left": (spoil(lambda s: np.r_[np.full(K - 1, 1 / (K - 1)), 0.0]), r"row 117: .* found 1: "),
    "other classes": (lambda s: s[:, :-1], r"labels\.npy: expected integer class labels of shape \(120,\) or probab"),
    "a mask": (lambda s: s > 0, r"labels\.npy: row \d+: expected one-hot labels, a single 1 and zeros, found 2 ones;"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_soft_label_is_refused_by_row(tmp_path, name):
    files = write_files(tmp_path, num_classes=K)
    change, message = BAD[name]
    np.save(files.labels, change(soft_of(files.y)))
    with pytest.raises(InputError, match=message):
        diagnose_files(open_inputs([files.student], files.teacher, files.labels), block_elements=10 * K)
