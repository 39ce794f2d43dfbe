"""The command's numbers are those of a plain loop, whatever the file format, the blocks and the size of the logits."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from diagnosis.files_of import write_files
from diagnosis.oracle import bisect, diagnose_row, frontier_value
from tpkd.diagnosis import run as study
from tpkd.diagnosis.examples import TOP_COMPETITORS
from tpkd.diagnosis.inputs import open_inputs
from tpkd.diagnosis.reading import read_student
from tpkd.diagnosis.record import DiagnosisRecord
from tpkd.diagnosis.run import check_outputs, diagnose_files, write_text
from tpkd.diagnosis.totals import CONFIDENCE_EDGES
from tpkd.errors import InputError

# What the command promises against a plain-loop script.
CLOSE = {"rtol": 1e-6, "atol": 1e-6}

CASES = {
    "ordinary": {"examples": 150, "num_classes": 7, "lead": 6.0},
    "three classes": {"examples": 90, "num_classes": 3, "lead": 8.0, "seed": 1},
    "lead 200": {"examples": 90, "num_classes": 10, "lead": 200.0, "seed": 2},
    "never blocked": {"examples": 60, "num_classes": 5, "never_blocked": True, "seed": 3},
    "missing classes": {"examples": 12, "num_classes": 40, "lead": 9.0, "seed": 4},
}


def diagnose_one(files, **settings):
    return diagnose_files(open_inputs([files.student], files.teacher, files.labels), **settings).students[0]


@pytest.fixture(scope="module", params=CASES)
def case(request, tmp_path_factory):
    files = write_files(tmp_path_factory.mktemp("case"), **CASES[request.param])
    rows = [diagnose_row(z, zt, y) for z, zt, y in zip(files.z, files.zt, files.y, strict=True)]
    return files, rows, diagnose_one(files)


def close(found, expected):
    np.testing.assert_allclose(found, expected, **CLOSE)


def test_means_equal_a_plain_loop(case):
    _, rows, student = case
    blocked = [row for row in rows if row["blocked"]]
    assert student.examples == len(rows)
    assert student.blocked_examples == len(blocked)
    close(student.blocked_share, len(blocked) / len(rows))
    for name, mean in student.all.items():
        close(mean, np.mean([row[name] for row in rows]))
    for name, mean in student.blocked.items():
        if blocked:
            close(mean, np.mean([row[name] for row in blocked]))
        else:
            assert mean is None


def test_the_cases_cover_no_blocking_and_much_of_it(case, request):
    shares = {"never blocked": (0, 0)}
    low, high = shares.get(request.node.callspec.params["case"], (0.05, 0.99))
    assert low <= case[2].blocked_share <= high


def test_decomposition_equals_a_plain_loop(case):
    _, rows, student = case
    parts = student.decomposition
    close(parts.confidence, np.mean([row["confidence_part"] for row in rows]))
    close(parts.conditional, np.mean([row["conditional_part"] for row in rows]))
    close(parts.confidence + parts.conditional, student.all["imitation_loss"])
    close(parts.conditional_share, parts.conditional / student.all["imitation_loss"])


def test_classes_equal_a_plain_loop(case):
    files, rows, student = case
    fields = ("confidence", "teacher_confidence", "conditional_loss", "transfer_cost")
    assert [state.index for state in student.classes] == list(range(student.num_classes))
    for state in student.classes:
        own = [row for row, label in zip(rows, files.y, strict=True) if label == state.index]
        assert state.examples == len(own)
        if not own:
            assert [state.blocked_share, *(getattr(state, name) for name in fields)] == [None] * 5
            continue
        close(state.blocked_share, np.mean([row["blocked"] for row in own]))
        for name in fields:
            close(getattr(state, name), np.mean([row[name] for row in own]))


def test_pairs_equal_a_plain_loop(case):
    files, rows, student = case
    left, weights = {}, {}
    for row, label in zip(rows, files.y.tolist(), strict=True):
        competitors = [j for j in range(student.num_classes) if j != label]
        for competitor, log_r, log_q in zip(competitors, row["log_r"], row["log_q"], strict=True):
            pair = (str(label), str(competitor))
            left[pair] = left.get(pair, 0.0) + np.exp(log_q) * (log_q - log_r)
            weights.setdefault(pair, []).append((np.exp(log_q), np.exp(log_r)))
    expected = sorted((value for value in left.values() if value > 0), reverse=True)[: study.LARGEST_PAIRS]
    close([pair.left * len(rows) for pair in student.pairs], expected)
    for pair in student.pairs:
        found = weights[pair.label, pair.competitor]
        assert pair.examples == len(found)
        close(pair.left * len(rows), left[pair.label, pair.competitor])
        close(pair.left_per_example * len(found), left[pair.label, pair.competitor])
        close((pair.teacher, pair.student), np.mean(found, axis=0))
    close(sum(left.values()) / len(rows), student.all["conditional_loss"])


def test_costliest_examples_equal_a_plain_loop(case):
    files, rows, student = case
    order = sorted(range(len(rows)), key=lambda i: -rows[i]["transfer_cost"])[: study.COSTLIEST_EXAMPLES]
    assert [example.row for example in student.costliest] == order
    for example in student.costliest:
        row, label = rows[example.row], int(files.y[example.row])
        assert (example.id, example.label, example.blocked) == (str(example.row), str(label), row["blocked"])
        close(example.transfer_cost, row["transfer_cost"])
        close(example.confidence, row["confidence"])
        for found, logs in ((example.student_competitors, row["log_r"]), (example.teacher_competitors, row["log_q"])):
            top = np.argsort(-logs, kind="stable")[:TOP_COMPETITORS]
            assert [int(item.name) for item in found] == [int(j + (j >= label)) for j in top]
            close([item.probability for item in found], np.exp(logs[top]))


def test_frontier_equals_bisection_on_the_multiplier(case):
    _, rows, student = case
    curve = student.frontier
    assert curve.sample == len(rows)  # fewer than the sample: all of them
    for budget, value in list(zip(curve.budgets, curve.values, strict=True))[::4]:
        close(value, np.mean([frontier_value(row["log_r"], row["log_q"], budget) for row in rows]))
    assert np.all(np.diff(curve.values) <= 1e-12)
    close(curve.values[0], student.all["conditional_loss"])


def test_the_budget_of_half_is_solved_for(case):
    """Against bisection on the mean of the plain loop; and never the next point of the grid."""
    _, rows, student = case
    curve = student.frontier

    def left(budget):
        return np.mean([frontier_value(row["log_r"], row["log_q"], budget) for row in rows])

    half = bisect(lambda budget: left(budget) - left(0) / 2, 0.0, max(row["transfer_cost"] for row in rows))
    assert curve.half_budget == pytest.approx(half, rel=1e-7)
    assert curve.half_budget not in curve.budgets


def test_histograms_and_bins_count_every_example_once(case):
    _, rows, student = case
    for name in ("conditional_loss", "transfer_cost"):
        histogram = getattr(student, name)
        values = np.array([row[name] for row in rows])
        expected = np.minimum((values / histogram.width).astype(int), len(histogram.counts) - 1)
        # A value within rounding of an edge may fall on either side.
        moved = np.abs(np.bincount(expected, minlength=len(histogram.counts)) - histogram.counts).sum()
        assert moved <= 2
        assert sum(histogram.counts) == len(rows)
        assert len(histogram.counts) <= study.HISTOGRAM_BINS
        close(histogram.largest, values.max())
    confidence = np.array([row["confidence"] for row in rows])
    for part in student.confidence_bins:
        last = part.high == 1.0
        inside = (confidence >= part.low) & ((confidence < part.high) | last)
        assert part.examples == inside.sum()
        assert part.blocked == sum(row["blocked"] for row, own in zip(rows, inside, strict=True) if own)
        assert (part.blocked_share is None) == (part.examples == 0)
    assert [part.low for part in student.confidence_bins] == list(CONFIDENCE_EDGES[:-1])
    assert sum(part.teacher_examples for part in student.confidence_bins) == len(rows)


@pytest.mark.parametrize("rows", [1, 7, 64, 150])
def test_blocks_do_not_matter(tmp_path, rows):
    files = write_files(tmp_path, **CASES["ordinary"])
    whole, parts = (diagnose_one(files, block_elements=n * 7) for n in (10_000, rows))
    for name in ("blocked_examples", "confidence_bins", "costliest", "transfer_cost", "frontier"):
        assert getattr(parts, name) == getattr(whole, name), name
    # Sums in another order differ in the last digits.
    np.testing.assert_allclose(list(parts.all.values()), list(whole.all.values()), rtol=1e-13)
    assert [(p.label, p.competitor) for p in parts.pairs] == [(p.label, p.competitor) for p in whole.pairs]


@pytest.mark.parametrize("kind", ["float16.npy", "float64.npz", "float32.safetensors", "bfloat16.safetensors"])
def test_formats_and_dtypes_only_round_the_logits(tmp_path, kind):
    files = write_files(tmp_path, **CASES["ordinary"])
    dtype, suffix = kind.split(".")
    rounded = torch.from_numpy(files.z).to(getattr(torch, dtype))
    path = tmp_path / f"other.{suffix}"
    if suffix == "safetensors":
        save_file({"logits": rounded, "labels": torch.from_numpy(files.y)}, path)
        labels = path
    else:
        labels = files.labels
        np.savez(path, rounded.numpy()) if suffix == "npz" else np.save(path, rounded.numpy())
    found = diagnose_files(open_inputs([path], files.teacher, labels)).students[0]
    np.save(files.student, rounded.double().numpy())
    assert replace(found, file="") == replace(diagnose_one(files), file="")


@pytest.mark.parametrize("which", ["student", "other", "teacher", "labels"])
def test_every_value_is_looked_at_before_the_first_is_worked_on(tmp_path, which):
    files = write_files(tmp_path, examples=4000, num_classes=5)
    np.save(tmp_path / "other.npy", files.z)
    path = tmp_path / f"{which}.npy"
    array = np.load(path)
    array[-1] = 7 if which == "labels" else np.inf
    np.save(path, array)
    inputs, done = open_inputs([files.student, tmp_path / "other.npy"], files.teacher, files.labels), []
    with pytest.raises(InputError, match=rf"{which}\.npy: row 3999: expected"):
        diagnose_files(inputs, block_elements=500, advance=lambda student, rows: done.append(rows))
    assert done == []


@pytest.mark.parametrize("name", ["uint8", "int8", "int16", "int32", "uint16", "uint32", "uint64"])
def test_label_files_mean_the_same_in_every_integer_type(tmp_path, name):
    files = write_files(tmp_path, examples=40, num_classes=200 if name == "uint8" else 100)
    expected = diagnose_one(files)
    np.save(files.labels, files.y.astype(name))
    assert diagnose_one(files) == expected


def test_a_label_file_with_numbers_that_no_int64_holds_is_refused(tmp_path):
    files = write_files(tmp_path)
    labels = files.y.astype(np.uint64)
    labels[7] = 2**64 - 100
    np.save(files.labels, labels)
    with pytest.raises(InputError, match=rf"labels.npy: row 7: expected a label from 0 to 5, found {2**64 - 100}"):
        diagnose_one(files)


def test_log_probabilities_work_like_logits(tmp_path):
    files = write_files(tmp_path, **CASES["ordinary"])
    expected = diagnose_one(files)
    for path, logits in ((files.student, files.z), (files.teacher, files.zt)):
        np.save(path, torch.from_numpy(logits).double().log_softmax(-1).numpy())
    inputs = open_inputs([files.student], files.teacher, files.labels, form="log-probabilities")
    found = diagnose_files(inputs).students[0]
    np.testing.assert_allclose(list(found.all.values()), list(expected.all.values()), rtol=1e-10)


def test_probabilities_are_taken_by_their_logarithms(tmp_path):
    files = write_files(tmp_path, **CASES["ordinary"])
    expected = diagnose_one(files)
    for path, logits in ((files.student, files.z), (files.teacher, files.zt)):
        np.savez(path.with_suffix(".npz"), probabilities=torch.from_numpy(logits).double().softmax(-1), other=files.y)
    paths = (path.with_suffix(".npz") for path in (files.student, files.teacher))
    inputs = open_inputs([next(paths)], next(paths), files.labels, form="probabilities")
    found = diagnose_files(inputs).students[0]
    np.testing.assert_allclose(list(found.all.values()), list(expected.all.values()), rtol=1e-10)


NOT_PROBABILITIES = {
    "zero": (
        lambda p: np.where(np.arange(len(p))[:, None] == 7, np.eye(6)[0], p),
        "row 7: .* positive .* found 0 at class 1",
    ),
    "negative": (lambda p: np.where(np.arange(len(p))[:, None] == 7, -p, p), "row 7: expected positive probabilities"),
    "sum": (lambda p: p * 1.01, "row 0: expected probabilities that sum to 1, found a sum of 1.01"),
    "nan": (lambda p: p * np.nan, "row 0: expected finite"),
}


@pytest.mark.parametrize("name", NOT_PROBABILITIES)
def test_what_is_not_probabilities_is_refused_by_row(tmp_path, name):
    files = write_files(tmp_path)
    change, message = NOT_PROBABILITIES[name]
    p, t = (torch.from_numpy(logits).double().softmax(-1).numpy() for logits in (files.z, files.zt))
    np.save(files.student, p)
    np.save(files.teacher, change(t))
    inputs = open_inputs([files.student], files.teacher, files.labels, form="probabilities")
    with pytest.raises(InputError, match=rf"teacher\.npy: {message}"):
        diagnose_files(inputs)


def test_several_students_come_out_in_order(tmp_path):
    files = write_files(tmp_path)
    other = tmp_path / "other.npy"
    np.save(other, files.zt)
    done = []
    inputs = open_inputs([files.student, other, files.student], files.teacher, files.labels)
    record = diagnose_files(inputs, advance=lambda student, rows: done.append(rows))
    assert [student.file for student in record.students] == [str(files.student), str(other), str(files.student)]
    assert record.students[0] == record.students[2]
    assert sum(done) == 3 * len(files.y)


def test_a_student_that_equals_its_teacher_has_nothing_left(tmp_path):
    files = write_files(tmp_path)
    np.save(files.student, files.zt)
    student = diagnose_one(files)
    assert student.blocked_share == 1.0
    assert student.all["conditional_loss"] == student.all["transfer_cost"] == student.all["imitation_loss"] == 0.0
    assert student.decomposition.conditional_share is None
    assert student.all["retention"] == 1.0
    assert set(student.frontier.values) == {0.0}
    assert student.frontier.half_budget is None
    assert student.pairs == ()


def test_a_student_that_equals_its_teacher_up_to_rounding_has_nothing_left(tmp_path):
    files = write_files(tmp_path)
    np.save(files.student, files.zt.astype(np.float64) + 100.0)
    student = diagnose_one(files)
    assert 0 <= student.all["imitation_loss"] < 1e-12
    assert student.decomposition.conditional_share is None
    text = " ".join(read_student(student))
    assert "nothing left to imitate" in text
    assert "margin" not in text


def test_names_of_classes_and_examples(tmp_path):
    files = write_files(tmp_path)
    names = ["a", "b", "c", "d", "e", "f"]
    (tmp_path / "names.txt").write_text("\n".join(names) + "\n\n")
    (tmp_path / "names.json").write_text(json.dumps(names))
    (tmp_path / "ids.txt").write_text("".join(f"image-{i}\n" for i in range(len(files.y))))
    np.save(tmp_path / "ids.npy", np.arange(len(files.y)) + 1000)
    for class_names, ids, expected in (("names.txt", "ids.txt", "image-{}"), ("names.json", "ids.npy", "1{:03d}")):
        inputs = open_inputs(
            [files.student], files.teacher, files.labels, class_names=tmp_path / class_names, ids=tmp_path / ids
        )
        student = diagnose_files(inputs).students[0]
        assert [state.name for state in student.classes] == names
        for example in student.costliest:
            assert example.id == expected.format(example.row)
            assert example.label == names[files.y[example.row]]


def test_the_record_is_json_of_schema_1_with_the_contracted_keys(tmp_path):
    files = write_files(tmp_path, never_blocked=True)
    record = diagnose_files(open_inputs([files.student], files.teacher, files.labels))
    data = json.loads(record.to_json())
    assert data["schema"] == 1
    (student,) = data["students"]
    assert {"file", "examples", "num_classes", "blocked_share", "blocked", "all"} <= set(student)
    assert student["blocked"]["conditional_loss"] is None
    assert student["blocked"]["transfer_cost"] is None
    assert set(student["all"]) == {
        *("blocked", "confidence", "teacher_confidence", "label_loss", "imitation_loss", "conditional_loss"),
        *("transfer_cost", "min_confidence", "compensation", "retention", "update_cosine"),
    }
    assert DiagnosisRecord.from_json(record.to_json()) == record


def test_too_many_classes_for_a_table_of_pairs_leave_it_off(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "PAIR_TABLE_CLASSES", 5)
    student = diagnose_one(write_files(tmp_path, num_classes=6))
    assert student.pairs is None
    assert student.all["conditional_loss"] > 0


def test_the_sample_of_the_frontier_is_bounded_and_uniform(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "FRONTIER_SAMPLE", 500)
    files = write_files(tmp_path, examples=4000, num_classes=5)
    student = diagnose_one(files)
    assert student.frontier.sample == 500
    # Five standard errors of the mean of 500 out of 4,000.
    spread = 5 * student.all["conditional_loss"] / 500**0.5
    assert abs(student.frontier.values[0] - student.all["conditional_loss"]) < spread


def test_outputs_are_checked_before_any_work(tmp_path):
    files = write_files(tmp_path)
    for output, message in (
        (files.teacher, "found one of the inputs"),
        (tmp_path, "found a directory"),
        (tmp_path / "no" / "out.json", "found no directory"),
    ):
        with pytest.raises(InputError, match=message):
            check_outputs([output], [files.student, files.teacher])
    with pytest.raises(InputError, match="found it twice"):
        check_outputs([tmp_path / "a", tmp_path / "a"], [])


def test_an_output_that_cannot_be_written_is_the_users_to_mend(tmp_path):
    with pytest.raises(InputError, match="cannot be written"):
        write_text(tmp_path / "gone" / "a.json", "{}")
