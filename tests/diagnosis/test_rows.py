"""The diagnosis in C agrees with its definition in tensor code, row by row, and with itself on any threads."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from diagnosis.files_of import write_files
from diagnosis.truncated_files import write_cut
from strategies import KINDS, make_pairs
from tpkd.diagnosis import rows as module
from tpkd.diagnosis.block import diagnose_block
from tpkd.diagnosis.inputs import open_inputs
from tpkd.diagnosis.rows import diagnose_rows, takes
from tpkd.diagnosis.run import diagnose_files
from tpkd.diagnosis.totals import PairTable
from tpkd.geometry import TopK
from tpkd.geometry.directions import accurate_difference
from tpkd.theory.diagnosis import Diagnosis
from tpkd.theory.pair import split_pair

needs_kernel = pytest.mark.skipif(
    module._kernel is None and shutil.which("cc") is None, reason="there is no C compiler to build the kernel"
)
TOLERANCE = 1e-12
"""Of a number relative to itself or to one: some thousand roundings in float64."""


@pytest.fixture
def torch_threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def both(student, teacher, labels, beta=0.5):
    """What the kernel finds, and what the definition says in float64."""
    numbers = torch.arange(len(labels))
    expected = diagnose_block(numbers, student.double(), teacher.double(), labels, beta=beta, temperature=1.0)
    return diagnose_rows(numbers, student, teacher, labels, beta=beta), expected


def roundings_of_the_step(pair):
    """How well the direction of u = r - q is known: to the roundings of r and q over the size of u.

    Those of the class that takes minus the sum of the others do not count.
    """
    log_r, log_q = pair.student.log_conditional, pair.teacher.log_conditional
    r, q = log_r.exp(), log_q.exp()
    off = torch.xlogy(r, r).abs() + r + torch.xlogy(q, q).abs() + q
    off = off.scatter(-1, r.minimum(q).argmax(-1, keepdim=True), 0.0).amax(-1)
    size = accurate_difference(log_r, log_q, r, q).abs().amax(-1)
    return (16 * torch.finfo(torch.float64).eps * off / size).nan_to_num(posinf=0.0)


def assert_twins(student, teacher, labels, beta=0.5):
    found, expected = both(student, teacher, labels, beta)
    pair = split_pair(student.double(), teacher.double(), labels)
    # Logits of a thousand and more are themselves known to no more than their rounding, and so are their differences.
    largest = max(1.0, student.abs().max().item() / 1e3, teacher.abs().max().item() / 1e3)
    tolerance, roundings = TOLERANCE * largest, roundings_of_the_step(pair)
    for name in Diagnosis.names():
        one, other = getattr(found.state, name), getattr(expected.state, name)
        if name == "blocked":
            excess = pair.student.log_residual - pair.teacher.log_residual - pair.log_ratio.amin(-1)
            assert ((one == other) | (excess.abs() <= tolerance)).all(), name
            continue
        slack = tolerance * other.abs().clamp(min=1)
        if name in ("retention", "update_cosine"):
            slack = slack.maximum(roundings)
        assert ((one - other).abs() <= slack).all(), (name, ((one - other).abs() / slack).max())
    for name in ("confidence", "conditional", "inside"):
        one, other = getattr(found.parts, name), getattr(expected.parts, name)
        assert ((one - other).abs() <= tolerance * other.abs().clamp(min=1)).all(), name
    assert torch.equal(found.answers, expected.answers)
    assert torch.equal(found.teacher_answers, expected.teacher_answers)


def test_it_is_built_where_there_is_a_compiler():
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    assert module._kernel is not None


@needs_kernel
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_classes", [3, 4, 7, 8, 9, 16, 17, 100, 1000])
def test_generated_rows_are_diagnosed_as_the_definition_says(kind, num_classes):
    pairs = make_pairs(kind, 300 if num_classes < 1000 else 20, num_classes, seed=0)
    assert_twins(*pairs)
    assert_twins(pairs.student.float(), pairs.teacher.float(), pairs.labels)


@needs_kernel
def test_a_vocabulary_is_a_row_too():
    for kind in ("random", "certain", "huge", "sparse"):
        assert_twins(*make_pairs(kind, 3, 20_000, seed=0))


HARD = {
    "zeros": lambda z, zt: (0 * z, 0 * zt),
    "flat student": lambda z, zt: (0 * z, zt),
    "equal": lambda z, zt: (z, z.clone()),
    "shifted": lambda z, zt: (z, z + 8),
    "close": lambda z, zt: (z, z + 1e-5 * zt),
    "ten thousand": lambda z, zt: (1e4 * z, 1e4 * zt),
    "against each other": lambda z, zt: (1e4 * z, -1e4 * z),
    "ten thousand up": lambda z, zt: (1e4 + z, 1e4 + zt),
    "at the edge of float64": lambda z, zt: (700 * z, 700 * zt),
    "denormal logits": lambda z, zt: (1e-310 * z, 1e-310 * zt),
    "a hundred digits": lambda z, zt: (1e99 * z, zt),
    "few values": lambda z, zt: (z.round(), zt.round()),
}


@needs_kernel
@pytest.mark.parametrize("beta", [0.0, 0.5, 30.0])
@pytest.mark.parametrize("kind", HARD)
def test_hard_rows_are_diagnosed_as_the_definition_says(kind, beta):
    for num_classes in (3, 5, 8, 100):
        z, zt, y = make_pairs("certain-both" if num_classes == 5 else "random", 100, num_classes, seed=7)
        assert_twins(*HARD[kind](z, zt), y, beta)


@needs_kernel
def test_equal_predictions_are_blocked_and_finished():
    z = torch.randn(200, 9)
    labels = torch.randint(9, (200,))
    for shift in (0.0, 4.0):  # floats of this size plus four keep their digits only where they have few
        z = (64 * z).round() / 64
        state = diagnose_rows(torch.arange(200), z, z + shift, labels, beta=0.5).state
        assert state.blocked.all()
        for name, value in (("conditional_loss", 0), ("transfer_cost", 0), ("compensation", 0), ("retention", 1)):
            assert (getattr(state, name) == value).all(), name


@needs_kernel
def test_every_number_of_a_wide_row_takes_part():
    """One class among many at a time, wherever it is in a vector, at its end or after it."""
    for num_classes in (3, 8, 9, 15, 16, 17):
        eye = 3 * torch.eye(num_classes)
        for label in range(num_classes):
            labels = torch.full((num_classes,), label)
            assert_twins(eye, torch.zeros_like(eye), labels)
            assert_twins(torch.zeros_like(eye), eye, labels)


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_logits_of_every_dtype_and_layout(dtype):
    z, zt, y = make_pairs("random", 30, 11, seed=3, dtype=dtype)
    expected = diagnose_rows(y, z.double(), zt.double(), y, beta=0.5).state
    wide = torch.stack([z, z], -1)[..., 0]
    memory = bytearray(zt.numel() * zt.itemsize + 1)
    odd = torch.frombuffer(memory, dtype=dtype, count=zt.numel(), offset=1).view(zt.shape).copy_(zt)
    for student, teacher in ((z, zt), (wide, zt.T.contiguous().T), (torch.cat([z, z], -1)[:, :11], odd)):
        found = diagnose_rows(y, student, teacher, y, beta=0.5).state
        for name in Diagnosis.names():
            assert torch.equal(getattr(found, name), getattr(expected, name)), name


@needs_kernel
@pytest.mark.parametrize("num_classes", [3, 40, 1000])
def test_tables_are_those_of_the_definition(num_classes):
    z, zt, y = make_pairs("random", 500, num_classes, seed=1)
    found, expected = PairTable(num_classes), PairTable(num_classes)
    diagnose_rows(y, z, zt, y, beta=0.5, tables=found.sums)
    expected.add(diagnose_block(y, z, zt, y, beta=0.5, temperature=1.0))
    torch.testing.assert_close(found.sums, expected.sums, rtol=TOLERANCE, atol=TOLERANCE)
    assert not found.sums.diagonal(dim1=1, dim2=2).any()


@needs_kernel
@pytest.mark.parametrize("num_classes", [3, 50, 3000])
def test_threads_change_no_bit_and_rows_are_alone(torch_threads, num_classes):
    z, zt, y = make_pairs("random", 150_000 // num_classes, num_classes, seed=2, dtype=torch.float32)
    outcomes = []
    for threads in (1, 2, 3, 7):
        torch_threads(threads)
        tables = torch.zeros(3, num_classes, num_classes, dtype=torch.float64) if num_classes < 1000 else None
        block = diagnose_rows(y, z, zt, y, beta=0.5, tables=tables)
        outcomes.append((block.state, tables))
    backwards = diagnose_rows(y.flip(0), z.flip(0), zt.flip(0), y.flip(0), beta=0.5).state
    state, sums = outcomes[0]
    for name in Diagnosis.names():
        for other, _ in outcomes[1:]:
            assert torch.equal(getattr(other, name), getattr(state, name)), name
        if name != "min_confidence":  # torch's sigmoid rounds differently at the end of a tensor
            assert torch.equal(getattr(backwards, name).flip(0), getattr(state, name)), name
    assert all(sums is None or torch.equal(tables, sums) for _, tables in outcomes)


@needs_kernel
def test_labels_that_are_not_classes_and_numbers_that_are_not_finite_leave_no_memory():
    z = torch.randn(4, 10)
    for wrong in (-1, 10, 2**40):
        labels = torch.tensor([0, 1, wrong, 2])
        with pytest.raises(ValueError, match=f"from 0 to 9, got {wrong} at row 2"):
            diagnose_rows(labels, z, z, labels, beta=0.5)
    for value in (torch.nan, torch.inf, -torch.inf):
        labels = torch.tensor([0, 1, 2, 3])
        diagnose_rows(labels, torch.full_like(z, value), z, labels, beta=0.5, tables=PairTable(10).sums)
    assert len(diagnose_rows(labels[:0], z[:0], z[:0], labels[:0], beta=0.5).rows) == 0


@needs_kernel
def test_the_kernel_reads_labels_that_nobody_else_can_change(monkeypatch):
    """Those of a mapped file may change after they were checked, and then index memory that is not there."""
    kernel, read = module._kernel, []

    class Watched:
        COLUMNS, scratch_numbers = kernel.COLUMNS, kernel.scratch_numbers

        @staticmethod
        def diagnose_rows(student, teacher, labels, *others):
            read.append(labels)
            return kernel.diagnose_rows(student, teacher, labels, *others)

    monkeypatch.setattr(module, "_kernel", Watched)
    labels = torch.tensor([0, 1, 2])
    diagnose_rows(labels, torch.randn(3, 4), torch.randn(3, 4), labels, beta=0.5)
    assert len(read) == 1
    assert read != [labels.data_ptr()]


def test_what_it_does_not_take_goes_to_tensor_code(monkeypatch):
    z, y = torch.zeros(2, 3), torch.tensor([0, 1])
    assert takes(z, z.double(), y) == (module._kernel is not None)
    assert not takes(z, z, y, temperature=2.0)
    assert not takes(z, z, torch.eye(3)[:2])
    assert not takes(z, TopK(z[:, :2], torch.tensor([[0, 1]] * 2)), y)
    assert not takes(z.to("meta"), z, y)
    monkeypatch.setattr(module, "_kernel", None)
    assert not takes(z, z, y)


def test_a_record_is_the_same_without_the_kernel(tmp_path, monkeypatch):
    files = write_files(tmp_path, examples=500, num_classes=11)
    inputs = open_inputs([files.student], files.teacher, files.labels)
    found = diagnose_files(inputs).students[0]
    monkeypatch.setattr(module, "_kernel", None)
    expected = diagnose_files(inputs).students[0]
    assert found.all == pytest.approx(expected.all, rel=TOLERANCE, abs=TOLERANCE)
    assert found.blocked == pytest.approx(expected.blocked, rel=TOLERANCE, abs=TOLERANCE)
    assert [pair.left for pair in found.pairs] == pytest.approx([pair.left for pair in expected.pairs], rel=TOLERANCE)
    same = ("frontier", "costliest", "competence", "confidence_bins", "blocked_examples")
    assert [getattr(found, name) for name in same] == [getattr(expected, name) for name in same]
    assert replace(found.transfer_cost, largest=0) == replace(expected.transfer_cost, largest=0)


CASES = {"classes": {}, "no kernel": {}, "temperature": {"temperature": 2.0}, "soft labels": {}, "top k": {}}


@pytest.mark.parametrize("case", CASES)
def test_the_bytes_of_a_record_do_not_depend_on_threads(tmp_path, torch_threads, monkeypatch, case):
    """Blocks large enough that torch and the kernel share them out."""
    files = write_files(tmp_path, examples=5000, num_classes=40)
    teacher, labels = files.teacher, files.labels
    if case == "no kernel":
        monkeypatch.setattr(module, "_kernel", None)
    if case == "top k":
        teacher = write_cut(files, 8, without_label=(3, 4))
    if case == "soft labels":
        labels = tmp_path / "soft.npy"
        np.save(labels, 0.7 * np.eye(40)[files.y] + 0.3 * np.eye(40)[(files.y + 1) % 40])
    found = set()
    for threads in (1, 2, 3):
        torch_threads(threads)
        found.add(diagnose_files(open_inputs([files.student], teacher, labels), **CASES[case]).to_json())
    assert len(found) == 1
