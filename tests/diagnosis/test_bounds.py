"""What a record says about a truncated teacher is never beyond what the whole teacher gives on the same data."""

import numpy as np
import pytest
import torch

from diagnosis.files_of import write_files
from diagnosis.oracle import diagnose_row, frontier_value
from diagnosis.truncated_files import cut_arrays, diagnose_cut, write_cut
from tpkd.diagnosis.inputs import open_inputs
from tpkd.diagnosis.run import diagnose_files
from tpkd.geometry import TopK, complete_top_k
from tpkd.theory import diagnose

# Sums over a few hundred examples in another order.
ROUNDING = 1e-12
LOWER = ("imitation_loss", "conditional_loss", "transfer_cost", "min_confidence")
CASES = {
    "ordinary": {"examples": 150, "num_classes": 9, "lead": 6.0},
    "sure": {"examples": 120, "num_classes": 12, "lead": 30.0, "seed": 2},
    "many classes": {"examples": 60, "num_classes": 60, "lead": 9.0, "seed": 4},
}


def diagnose_whole(files):
    return diagnose_files(open_inputs([files.student], files.teacher, files.labels)).students[0]


@pytest.fixture(scope="module", params=CASES)
def whole(request, tmp_path_factory):
    files = write_files(tmp_path_factory.mktemp("whole"), **CASES[request.param])
    rows = [diagnose_row(z, zt, y) for z, zt, y in zip(files.z, files.zt, files.y, strict=True)]
    return files, rows, diagnose_whole(files)


@pytest.fixture(params=[1, 2, 3, 5, 8])
def case(request, whole):
    files, rows, student = whole
    return files, rows, student, diagnose_cut(files, request.param)


def test_means_are_on_the_right_side_of_the_whole_teachers(case):
    _, _, whole, cut = case
    assert cut.blocked_share >= whole.blocked_share
    assert cut.blocked_examples >= whole.blocked_examples
    for name in LOWER:
        assert cut.all[name] <= whole.all[name] + ROUNDING, name
    for name in ("confidence", "teacher_confidence", "label_loss"):
        assert cut.all[name] == pytest.approx(whole.all[name], rel=1e-12), name
    assert cut.competence == whole.competence


def test_few_classes_leave_a_gap(whole):
    files, _, student = whole
    cut = diagnose_cut(files, 1)
    assert cut.blocked_share > student.blocked_share
    assert cut.all["conditional_loss"] < 0.9 * student.all["conditional_loss"]


def test_means_over_what_may_be_blocked_bound_the_whole_teachers_over_the_same_examples(case):
    files, rows, _, cut = case
    z, y = torch.from_numpy(files.z).double(), torch.from_numpy(files.y)
    arrays = dict(np.load(files.teacher.parent / "top.npz"))
    flags = diagnose(z, TopK(**{key: torch.from_numpy(value) for key, value in arrays.items()}), y).blocked.tolist()
    own = [row for row, flag in zip(rows, flags, strict=True) if flag]
    assert cut.blocked_examples == len(own)
    assert all(flag for row, flag in zip(rows, flags, strict=True) if row["blocked"])
    for name in LOWER:
        assert cut.blocked[name] <= np.mean([row[name] for row in own]) + ROUNDING, name


def test_the_parts_of_the_teacher_kl(case):
    _, _, whole, cut = case
    assert cut.decomposition.confidence == pytest.approx(whole.decomposition.confidence, rel=1e-9)
    assert cut.decomposition.conditional <= whole.decomposition.conditional + ROUNDING
    assert cut.decomposition.conditional_share <= whole.decomposition.conditional_share + ROUNDING
    total = cut.decomposition.confidence + cut.decomposition.conditional
    assert total == pytest.approx(cut.all["imitation_loss"], rel=1e-9)


def test_bins_classes_and_histograms(case):
    _, _, whole, cut = case
    for ours, theirs in zip(cut.confidence_bins, whole.confidence_bins, strict=True):
        assert (ours.examples, ours.teacher_examples) == (theirs.examples, theirs.teacher_examples)
        assert ours.blocked >= theirs.blocked
    for ours, theirs in zip(cut.classes, whole.classes, strict=True):
        assert ours.examples == theirs.examples
        if ours.examples:
            assert ours.blocked_share >= theirs.blocked_share
            assert ours.conditional_loss <= theirs.conditional_loss + ROUNDING
            assert ours.transfer_cost <= theirs.transfer_cost + ROUNDING
            assert ours.teacher_confidence == pytest.approx(theirs.teacher_confidence, rel=1e-9)
    for name in ("conditional_loss", "transfer_cost"):
        assert getattr(cut, name).largest <= getattr(whole, name).largest + ROUNDING
        assert sum(getattr(cut, name).counts) == cut.examples


def test_the_frontier_is_a_lower_bound_at_every_budget(case):
    _, rows, _, cut = case
    for budget, value in list(zip(cut.frontier.budgets, cut.frontier.values, strict=True))[::5]:
        above = np.mean([frontier_value(row["log_r"], row["log_q"], budget) for row in rows])
        assert value <= above + 1e-9


def test_examples_show_what_was_kept(case):
    files, rows, _, cut = case
    kept = np.load(files.teacher.parent / "top.npz")["indices"]
    for example in cut.costliest:
        row, label = rows[example.row], files.y[example.row]
        assert example.transfer_cost <= row["transfer_cost"] + ROUNDING
        assert example.conditional_loss <= row["conditional_loss"] + ROUNDING
        assert example.blocked or not row["blocked"]
        weights = {j + (j >= label): np.exp(log_q) for j, log_q in enumerate(row["log_q"])}
        own = sorted((weights[j] for j in kept[example.row] if j != label), reverse=True)[:3]
        assert [item.probability for item in example.teacher_competitors] == pytest.approx(own, rel=1e-9)
        assert all(int(item.name) in kept[example.row] for item in example.teacher_competitors)


@pytest.mark.parametrize("all_but_one", [False, True])
def test_a_teacher_that_kept_everything_is_the_whole_one(whole, all_but_one):
    """With the label beside them, all classes but the smallest say everything: its probability is the rest."""
    files, _, student = whole
    cut = diagnose_cut(files, files.z.shape[1] - all_but_one)
    assert cut.blocked_examples == student.blocked_examples
    assert list(cut.all.values()) == pytest.approx(list(student.all.values()), rel=1e-9)
    assert cut.frontier.values == pytest.approx(student.frontier.values, rel=1e-7, abs=1e-12)
    assert cut.frontier.half_budget == pytest.approx(student.frontier.half_budget, rel=1e-6)
    assert [example.row for example in cut.costliest] == [example.row for example in student.costliest]
    assert [(p.label, p.competitor) for p in cut.pairs] == [(p.label, p.competitor) for p in student.pairs]
    assert [p.left for p in cut.pairs] == pytest.approx([p.left for p in student.pairs], rel=1e-7)


@pytest.mark.parametrize("k", [2, 5])
def test_half_precision_moves_bounds_by_its_own_rounding_only(whole, k):
    files, _, student = whole
    cut = diagnose_cut(files, k, dtype=np.float16)
    for name in ("imitation_loss", "conditional_loss", "transfer_cost"):
        assert cut.all[name] <= student.all[name] * (1 + 2e-3) + 2e-3
    assert cut.blocked_share >= student.blocked_share - 1 / student.examples


def test_without_the_stored_total_one_minus_the_others_stands_in(whole):
    files, _, student = whole
    keys = ("log_probs", "indices", "label_log_probs")
    cut = diagnose_cut(files, 3, keys=keys)
    exact = diagnose_cut(files, 3)
    assert list(cut.all.values()) == pytest.approx(list(exact.all.values()), rel=1e-4)
    assert cut.blocked_share >= student.blocked_share


def test_what_bounds_are_is_said_of_every_number(whole):
    files, _, student = whole
    cut = diagnose_cut(files, 3)
    assert student.bounds is None
    assert set(cut.all) <= set(cut.bounds)
    assert {
        name: cut.bounds[name] for name in ("blocked", "frontier.values", "frontier.half_budget", "pairs.left")
    } == {
        "blocked": "upper",
        "frontier.values": "lower",
        "frontier.half_budget": "completed",
        "pairs.left": "completed",
    }


UNKNOWN = tuple(range(0, 150, 4))


def labels_kept(files, k):
    return (cut_arrays(files.zt, files.y, k)["indices"] == files.y[:, None]).any(1)


@pytest.fixture(scope="module")
def lacking(tmp_path_factory):
    files = write_files(tmp_path_factory.mktemp("lacking"), **CASES["ordinary"])
    arrays = cut_arrays(files.zt, files.y, 2, without_label=UNKNOWN)
    top_k = TopK(**{key: torch.from_numpy(value) for key, value in arrays.items()})
    return files, diagnose(torch.from_numpy(files.z).double(), top_k, torch.from_numpy(files.y))


@pytest.mark.parametrize("rows", [1, 7, 150])
def test_examples_without_the_labels_own_enter_no_bound(lacking, rows):
    """As `Diagnosis.summary` has it, whatever the blocks."""
    files, state = lacking
    path = write_cut(files, 2, without_label=UNKNOWN)
    inputs = open_inputs([files.student], path, files.labels)
    student = diagnose_files(inputs, block_elements=rows * 9).students[0]
    summary = state.summary()
    assert student.all == pytest.approx(summary["all"], rel=1e-12)
    assert student.blocked_share == pytest.approx(summary["blocked_share"])
    for name, value in summary["blocked"].items():
        assert student.blocked[name] == pytest.approx(value, rel=1e-12)
    without = student.without_label
    assert without.examples == summary["without_label"]["examples"] == sum(~labels_kept(files, 2)[list(UNKNOWN)]) > 0
    assert without.conditional_loss == pytest.approx(summary["without_label"]["conditional_loss"], rel=1e-12)
    assert without.transfer_cost == pytest.approx(summary["without_label"]["transfer_cost"], rel=1e-12)
    known = state.label_known.numpy()
    assert student.known_examples == student.frontier.sample == known.sum()
    blocked = state.blocked.numpy()
    assert (blocked & ~known).any()
    for name in ("confidence", "label_loss", "retention"):
        expected = getattr(state, name).numpy()[blocked & known].mean()
        assert student.blocked[name] == pytest.approx(expected, rel=1e-12), name
    assert sum(part.examples for part in student.confidence_bins) == known.sum()
    assert sum(student.transfer_cost.counts) == known.sum()
    assert all(known[example.row] for example in student.costliest)
    for part in student.classes:
        own = files.y == part.index
        assert part.examples == own.sum()
        assert part.conditional_loss == pytest.approx(state.conditional_loss.numpy()[own & known].mean(), rel=1e-12)
        assert part.confidence == pytest.approx(state.confidence.numpy()[own].mean(), rel=1e-12)


def test_pairs_are_those_of_the_completed_teacher(lacking):
    files, state = lacking
    student = diagnose_cut(files, 2, without_label=UNKNOWN)
    arrays = {key: torch.from_numpy(value) for key, value in np.load(files.teacher.parent / "top.npz").items()}
    z, y = torch.from_numpy(files.z).double(), torch.from_numpy(files.y)
    completed = complete_top_k(
        z,
        arrays["log_probs"],
        arrays["indices"],
        y,
        label_log_probs=arrays["label_log_probs"],
        rest_log_probs=arrays["rest_log_probs"],
    )
    found = {}
    for row in state.label_known.nonzero().flatten().tolist():
        parts = diagnose_row(files.z[row], completed[row].numpy(), files.y[row])
        competitors = [j for j in range(9) if j != files.y[row]]
        for competitor, log_r, log_q in zip(competitors, parts["log_r"], parts["log_q"], strict=True):
            found.setdefault((str(files.y[row]), str(competitor)), []).append(np.exp(log_q) * (log_q - log_r))
    known = state.label_known.sum().item()
    for pair in student.pairs:
        own = found[pair.label, pair.competitor]
        assert pair.examples == len(own)
        assert pair.left == pytest.approx(sum(own) / known, rel=1e-9)
