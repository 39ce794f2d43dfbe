"""`tpkd diagnose` as a user meets it: what it prints and writes, and how it refuses."""

import json
import os
import pickle
import re
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from typer.testing import CliRunner

from cli.training_runs import run as run_main
from diagnosis.files_of import write_files
from diagnosis.truncated_files import write_cut
from tpkd.cli.main import app
from tpkd.diagnosis.record import DiagnosisRecord
from tpkd.errors import InputError
from tpkd.report.numbers import share_up
from tpkd.student.loading import Predictions
from tpkd.student.outputs import open_output
from tpkd.student.prediction import PredictedBatch
from tpkd.theory import diagnose

runner = CliRunner()


def run(*arguments):
    return runner.invoke(app, ["diagnose", *map(str, arguments)])


@pytest.fixture
def files(tmp_path):
    return write_files(tmp_path)


def test_table_reading_json_and_page(files, tmp_path):
    result = run(*files.arguments(), "--json", tmp_path / "out.json", "--html", tmp_path / "page.html")
    assert result.exit_code == 0
    student = DiagnosisRecord.from_json((tmp_path / "out.json").read_text()).students[0]
    percent = f"{100 * student.blocked_share:.1f} %"
    assert f"Full imitation is blocked on {percent} of your examples" in result.stdout
    assert f"{student.blocked['conditional_loss']:.3f} nats of conditional knowledge are left there" in result.stdout
    assert "They do not promise accuracy." in result.stdout
    assert percent in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("change", ["none", "columns", "rows"])
def test_the_teachers_accuracy_comes_first_and_chance_is_said(tmp_path, change):
    files = write_files(tmp_path, examples=600)
    good = files.zt + 4 * np.eye(6, dtype=np.float32)[files.y]
    shuffled = np.random.default_rng(0).permutation(600)
    np.save(files.teacher, {"none": good, "columns": np.roll(good, 1, 1), "rows": good[shuffled]}[change])
    result = run(*files.arguments(), "--json", tmp_path / "out.json", "--html", tmp_path / "page.html")
    assert result.exit_code == 0
    teacher = np.load(files.teacher).argmax(-1)
    found = json.loads((tmp_path / "out.json").read_text())["students"][0]["competence"]
    assert found["teacher_accuracy"] == np.mean(teacher == files.y)
    assert found["student_accuracy"] == np.mean(files.z.argmax(-1) == files.y)
    assert found["agreement"] == np.mean(files.z.argmax(-1) == teacher)
    assert found["near_chance"] == (change != "none")
    page = (tmp_path / "page.html").read_text()
    for text in (result.stdout, page):
        said = " ".join(text.split())
        assert f"The teacher is right on {100 * found['teacher_accuracy']:.1f} % of 600 examples" in said
        assert ("Warning: the teacher seems to know nothing" in said) == (change != "none")
        assert said.index("The teacher is right on") < said.index("Full imitation is blocked")


def test_an_empty_blocked_set_is_n_0_and_none(tmp_path):
    files = write_files(tmp_path, never_blocked=True)
    result = run(*files.arguments(), "--json", tmp_path / "out.json", "--html", tmp_path / "page.html")
    assert result.exit_code == 0
    assert "blocked on none of your 120 examples (n = 0)" in result.stdout
    page = (tmp_path / "page.html").read_text()
    assert ">none</data>" in page
    for text in (result.stdout, page, (tmp_path / "out.json").read_text()):
        assert not re.search(r"\bnan\b", text.lower())


def test_several_students_give_a_trend(files, tmp_path):
    np.save(tmp_path / "later.npy", files.z * 1.5)
    result = run(files.student, tmp_path / "later.npy", *files.arguments()[1:])
    assert result.exit_code == 0
    assert "From the first student to the last" in result.stdout
    assert "later.npy" in result.stdout


def test_students_of_the_same_name_are_told_apart(files, tmp_path):
    students = [tmp_path / folder / "logits.npy" for folder in ("ce", "[kd]")]
    for factor, path in enumerate(students, start=1):
        path.parent.mkdir()
        np.save(path, files.z * factor)
    result = run(*students, *files.arguments()[1:], "--json", tmp_path / "o.json", "--html", tmp_path / "p.html")
    assert result.exit_code == 0
    record = DiagnosisRecord.from_json((tmp_path / "o.json").read_text())
    assert [student.file for student in record.students] == [str(path) for path in students]
    page = (tmp_path / "p.html").read_text()
    for name in ("ce/logits.npy", "[kd]/logits.npy"):
        assert name in result.stdout
        assert f'<th scope="row">{name}</th>' in page
    assert "<title>tpkd diagnosis of [kd]/logits.npy</title>" in page


def test_a_wrong_value_at_the_end_is_found_before_anything_is_said(files, tmp_path):
    z = files.z.copy()
    z[-1, 0] = np.nan
    np.save(tmp_path / "last.npy", z)
    result = run(files.student, tmp_path / "last.npy", *files.arguments()[1:])
    assert "last.npy: row 119: expected finite logits, found nan at class 0" in str(result.exception)
    assert (result.stdout, result.stderr) == ("", "")


def test_a_teacher_that_was_cut_is_one_line_and_exit_2(files, capsys, monkeypatch):
    top = np.argsort(-files.zt, axis=1)[:, :3]
    cut = np.full_like(files.zt, -1e4)
    np.put_along_axis(cut, top, np.take_along_axis(files.zt, top, 1), 1)
    np.save(files.teacher, cut)
    code, out, err = run_main(capsys, monkeypatch, "diagnose", *files.arguments())
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert f"{files.teacher}: expected the logits of all classes" in err
    assert "(-10000 in row 0): a teacher cut to its top classes flips the blocking test" in err


def spoil_row(path, value):
    array = np.load(path)
    array[17, 2] = value
    np.save(path, array)


def spoil_label(files, value):
    labels = files.y.copy()
    labels[31] = value
    np.save(files.labels, labels)


def write_names(files, text, suffix=""):
    path = files.labels.parent / f"names{suffix}"
    path.write_text(text)
    return ["--class-names", path]


def write_ids(files, count):
    path = files.labels.parent / "ids"
    path.write_text("x\n" * count)
    return ["--ids", path]


BAD = {
    "missing student": (lambda f: f.student.unlink(), r"student\.npy: cannot be read: No such file"),
    "missing labels": (lambda f: f.labels.unlink(), r"labels\.npy: cannot be read"),
    "pickled": (
        lambda f: np.save(f.teacher, np.array([{}], dtype=object), allow_pickle=True),
        r"teacher\.npy: expected numbers, found a pickled array",
    ),
    "garbage": (lambda f: f.teacher.write_bytes(b"garbage"), r"teacher\.npy: damaged"),
    "one axis": (lambda f: np.save(f.student, f.z[:, 0]), r"student\.npy: expected logits of shape .* \(120,\)"),
    "integer logits": (lambda f: np.save(f.teacher, f.y[:, None]), r"teacher\.npy: expected floating-point .* int64"),
    "two classes": (lambda f: np.save(f.teacher, f.zt[:, :2]), r"teacher\.npy: expected at least 3 classes, found 2"),
    "no examples": (lambda f: np.save(f.teacher, f.zt[:0]), r"teacher\.npy: expected at least one example"),
    "fewer students": (lambda f: np.save(f.student, f.z[:-1]), r"student\.npy: expected 120 examples .* found 119 x 6"),
    "fewer classes": (lambda f: np.save(f.student, f.z[:, :-1]), r"student\.npy: expected 120 .* found 120 x 5"),
    "fewer labels": (lambda f: np.save(f.labels, f.y[:-1]), r"labels\.npy: expected 120 labels .* shape \(119,\)"),
    "logits as labels": (
        lambda f: np.save(f.labels, f.zt),
        r"labels\.npy: row 0: expected probabilities, .* found least entry .*; are these logits instead of labels\?",
    ),
    "classes as floats": (
        lambda f: np.save(f.labels, f.y.astype(np.float32)),
        r"labels\.npy: expected integer class labels of shape \(120,\) or prob.* \(120, 6\), found .*astype\(int\)",
    ),
    "nan": (
        lambda f: spoil_row(f.student, np.nan),
        r"student\.npy: row 17: expected finite logits, found nan at class 2",
    ),
    "infinite": (lambda f: spoil_row(f.teacher, -np.inf), r"teacher\.npy: row 17: expected finite logits, found -inf"),
    "label too large": (lambda f: spoil_label(f, 6), r"labels\.npy: row 31: expected a label from 0 to 5, found 6"),
    "label negative": (
        lambda f: spoil_label(f, -1),
        r"labels\.npy: row 31: .* found -1; mark rows to leave out with -100",
    ),
    "labels from 1": (
        lambda f: np.save(f.labels, f.y + 1),
        r"labels\.npy: row \d+: expected a label from 0 to 5, found 6; they go from 1 to 6: subtract 1",
    ),
    "labels with an axis": (
        lambda f: np.save(f.labels, f.y[:, None]),
        r"labels\.npy: expected 120 labels .* shape \(120, 1\); save them without their second axis, as labels\[:, 0\]",
    ),
    "several ones": (
        lambda f: np.save(f.labels, np.ones((120, 6), int)),
        r"labels\.npy: row 0: expected one-hot labels, a single 1 and zeros, found 6 ones",
    ),
    "counts as labels": (
        lambda f: np.save(f.labels, 7 * np.eye(6, dtype=int)[f.y]),
        r"labels\.npy: row 0: expected one-hot labels, a single 1 and zeros, found 7",
    ),
    "nothing but ignored": (
        lambda f: np.save(f.labels, np.full(120, -100)),
        r"labels\.npy: expected at least one label from 0 to 5, found -100 in every row",
    ),
    "transposed student": (
        lambda f: np.save(f.student, f.z.T),
        r"student\.npy: expected 120 examples .* found 6 x 120: one of them is transposed; a row per example",
    ),
    "transposed logits": (
        lambda f: (np.save(f.student, f.z.T), np.save(f.teacher, f.zt.T)),
        r"labels\.npy: expected 6 labels .* found shape \(120,\); .*teacher\.npy may be transposed",
    ),
    "transposed one-hot": (
        lambda f: np.save(f.labels, np.eye(6, dtype=int)[f.y].T),
        r"labels\.npy: expected 120 labels .* found shape \(6, 120\); it looks transposed",
    ),
    "labels as student": (lambda f: np.save(f.student, f.y), r"student\.npy: expected logits .*; are these labels\?"),
    "names of no classes": (
        lambda f: np.save(f.labels, np.array(["cat"] * 120)),
        r"labels\.npy: row 0: expected a class number, found 'cat'; for labels by name, .* with --class-names",
    ),
    "both forms": (lambda f: ["--probabilities", "--log-probabilities"], "--probabilities: expected one form"),
    "no such column": (
        lambda f: ["--label-column", "topic"],
        r"labels\.npy: expected an array or column named 'topic', found none with a name",
    ),
    "five names": (lambda f: write_names(f, "a\nb\nc\nd\ne\n"), r"names: expected 6 class names .* found 5"),
    "119 ids": (lambda f: write_ids(f, 119), r"ids: expected 120 ids .* found 119"),
    "names in JSON": (
        lambda f: write_names(f, '{"0": "cat"}', ".json"),
        r"names\.json: expected a JSON list of names",
    ),
    "probabilities": (
        lambda f: np.save(f.student, torch.from_numpy(f.z).softmax(-1).numpy()),
        r"student\.npy: row 0: expected logits, found probabilities .* say so with --probabilities",
    ),
    "probabilities with zeros": (
        lambda f: np.save(f.teacher, np.eye(6, dtype=np.float32)[f.y]),
        r"teacher\.npy: row 0: expected logits, found probabilities",
    ),
    "not normalised": (
        lambda f: ["--log-probabilities"],
        r"student\.npy: row 0: expected log-probabilities whose exponentials sum to 1",
    ),
    "directory as output": (lambda f: ["--json", f.labels.parent], "expected a file to write"),
    "input as output": (lambda f: ["--html", f.labels], "found one of the inputs"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line_naming_the_file_and_leaves_nothing_behind(files, tmp_path, name):
    spoil, message = BAD[name]
    extra = spoil(files)
    extra = extra if isinstance(extra, list) else []
    before = sorted(path.name for path in tmp_path.iterdir())
    result = run(*files.arguments(), "--json", tmp_path / "out.json", "--html", tmp_path / "page.html", *extra)
    assert isinstance(result.exception, InputError)
    assert "\n" not in str(result.exception)
    assert result.stdout == ""
    with pytest.raises(InputError, match=message):
        raise result.exception
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_process_exits_with_2_and_one_line(files, tmp_path):
    spoil_row(files.student, np.nan)
    command = [sys.executable, "-m", "tpkd", "diagnose", *files.arguments(), "--json", str(tmp_path / "out.json")]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"tpkd: {files.student}: row 17: ")
    assert not (tmp_path / "out.json").exists()


def test_a_wrong_row_is_counted_over_the_whole_file(tmp_path):
    files = write_files(tmp_path, examples=30_000, num_classes=6)
    z = files.z.copy()
    z[29_998, 1] = np.inf
    np.save(files.student, z)
    result = run(*files.arguments())
    assert "row 29998:" in str(result.exception)


def test_a_truncated_teacher_from_files_to_page(files, tmp_path):
    top = write_cut(files, 2, name="top.safetensors", dtype=np.float16)
    outputs = ["--json", tmp_path / "out.json", "--html", tmp_path / "page.html"]
    result = run(files.student, "--teacher", top, "--labels", files.labels, *outputs)
    assert result.exit_code == 0
    data = json.loads((tmp_path / "out.json").read_text())
    assert data["truncation"] == {"k": 2, "dtype": "float16", "rest_stored": True}
    student = data["students"][0]
    assert student["bounds"]["blocked"] == "upper"
    assert "This teacher kept its top 2 of 6 classes" in " ".join(result.stdout.split())
    assert f"blocked on at most {share_up(student['blocked_share'])} of your examples" in result.stdout
    assert "kept its top 2 of 6 classes" in (tmp_path / "page.html").read_text()


def test_a_truncated_teacher_that_does_not_fit_is_one_line_and_exit_2(files, tmp_path, capsys, monkeypatch):
    top = write_cut(files, 2, keys=("indices", "label_log_probs"))
    arguments = [str(files.student), "--teacher", str(top), "--labels", str(files.labels)]
    code, out, err = run_main(capsys, monkeypatch, "diagnose", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"{top}: expected log_probs and indices" in err


def test_soft_labels_from_files_to_page(files, tmp_path):
    np.save(files.labels, 0.6 * np.eye(6)[files.y] + 0.4 * np.eye(6)[(files.y + 2) % 6])
    result = run(*files.arguments(), "--json", tmp_path / "out.json", "--html", tmp_path / "page.html")
    assert result.exit_code == 0
    assert json.loads((tmp_path / "out.json").read_text())["soft_labels"]["most_correct"] == 2
    assert "The labels are probabilities" in result.stdout


STEP_FIELDS = {"compensation", "retention", "update_cosine"}


def test_beta_and_temperature_change_the_numbers_of_the_step_alone(files, tmp_path):
    records = []
    for options in ([], ["--beta", 2], ["--temperature", 4]):
        assert run(*files.arguments(), "--json", tmp_path / "out.json", *options).exit_code == 0
        records.append(json.loads((tmp_path / "out.json").read_text()))
    plain, beta, temperature = (record["students"][0]["all"] for record in records)
    assert {name for name in plain if beta[name] != plain[name]} == {"update_cosine"}
    assert {name for name in plain if temperature[name] != plain[name]} == STEP_FIELDS
    z, zt, y = (torch.from_numpy(array) for array in (files.z, files.zt, files.y))
    expected = diagnose(z.double(), zt.double(), y, temperature=4.0).summary()["all"]
    assert temperature == pytest.approx(expected, rel=1e-12)
    assert [set(record) & {"beta", "temperature"} for record in records] == [set(), {"beta"}, {"temperature"}]


@pytest.mark.parametrize(
    "option", [("--beta", "-1"), ("--beta", "inf"), ("--temperature", "0"), ("--temperature", "nan")]
)
def test_a_step_that_there_is_not_is_refused(files, option):
    result = run(*files.arguments(), *option)
    assert isinstance(result.exception, InputError)
    assert str(result.exception).startswith(f"{option[0]}: expected")


def test_an_ascii_terminal_can_show_bounds(files):
    top = write_cut(files, 2)
    command = [sys.executable, "-m", "tpkd", "diagnose", files.student, "--teacher", top, "--labels", files.labels]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    result = subprocess.run(command, capture_output=True, env=environment)
    assert result.returncode == 0
    assert b"<= " in result.stdout


@pytest.mark.parametrize("module", ["jinja2", "matplotlib"])
def test_a_missing_extra_is_one_line_before_any_work(files, tmp_path, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    result = run(*files.arguments(), "--html", tmp_path / "page.html")
    assert isinstance(result.exception, InputError)
    assert "tpkd[report]" in str(result.exception)
    assert not (tmp_path / "page.html").exists()


def test_without_the_page_the_base_install_is_enough(files, tmp_path):
    code = """
import sys
for name in ("jinja2", "matplotlib", "sklearn", "scipy", "pyarrow"):
    sys.modules[name] = None
from tpkd.cli.main import app
app(sys.argv[1:], standalone_mode=False)
"""
    json_path = tmp_path / "out.json"
    command = [sys.executable, "-c", code, "diagnose", *files.arguments(), "--json", str(json_path)]
    subprocess.run(command, check=True, capture_output=True)
    assert json.loads(json_path.read_text())["schema"] == 1


def as_format(path, array, names):
    """The same numbers in another format, which is told by the suffix."""
    if path.suffix == ".pt":
        torch.save({"logits": torch.from_numpy(array), "class_names": list(names)}, path)
    elif path.suffix == ".parquet":
        parquet.write_table(pa.table(dict(zip(names, array.T, strict=True))), path)
    else:
        sign = "\t" if path.suffix == ".tsv" else ","
        rows = [sign.join(names), *(sign.join(repr(float(value)) for value in row) for row in array)]
        path.write_text("\n".join(rows))
    return path


@pytest.mark.parametrize("suffix", [".pt", ".csv", ".tsv", ".parquet"])
def test_every_format_gives_the_same_numbers(files, tmp_path, suffix):
    names = ["cat", "dog", "bird", "fish", "bee", "elk"]
    student, teacher = (
        as_format(tmp_path / f"{path.stem}{suffix}", array, names)
        for path, array in ((files.student, files.z), (files.teacher, files.zt))
    )
    (tmp_path / "labels.txt").write_text("".join(f"{names[label]}\n" for label in files.y))
    assert run(*files.arguments(), "--json", tmp_path / "plain.json").exit_code == 0
    arguments = [student, "--teacher", teacher, "--labels", tmp_path / "labels.txt", "--json", tmp_path / "out.json"]
    result = run(*arguments)
    assert result.exit_code == 0
    plain, found = (json.loads((tmp_path / name).read_text()) for name in ("plain.json", "out.json"))
    assert found["class_names"] == names
    for key in ("all", "blocked", "blocked_share", "competence", "frontier", "transfer_cost"):
        assert found["students"][0][key] == plain["students"][0][key]
    (tmp_path / "names.txt").write_text("\n".join(reversed(names)))
    result = run(*arguments, "--class-names", tmp_path / "names.txt")
    assert "names.txt: class 0: expected 'cat' as in " in str(result.exception)


def test_ignored_rows_are_said_everywhere(files, tmp_path):
    labels = files.y.copy()
    labels[[3, 7]] = -100
    np.save(files.labels, labels)
    result = run(*files.arguments(), "--json", tmp_path / "out.json", "--html", tmp_path / "page.html")
    assert result.exit_code == 0
    said = "2 rows with the label -100 are left out; 118 examples enter the numbers."
    assert said in " ".join(result.stdout.split())
    assert said in (tmp_path / "page.html").read_text()
    data = json.loads((tmp_path / "out.json").read_text())
    assert (data["ignored"], data["students"][0]["examples"]) == (2, 118)


def test_what_next_is_said_last_but_the_caveat(files, tmp_path):
    result = run(*files.arguments(), "--html", tmp_path / "page.html")
    said = " ".join(result.stdout.split())
    assert said.index("Full imitation is blocked") < said.index("What next: ") < said.index("They do not promise")
    assert "<h2>What next</h2>" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("suffix", [".csv", ".npz", ".parquet"])
def test_predictions_of_tpkd_are_diagnosed_as_probabilities(files, tmp_path, suffix):
    """The columns and arrays that `tpkd predict` writes."""
    names = ["cat", "dog", "bird", "fish", "bee", "elk"]
    paths = []
    for name, logits in (("student", files.z), ("teacher", files.zt)):
        probabilities = torch.from_numpy(logits).softmax(-1)
        indices = probabilities.argmax(-1)
        labels = tuple(names[index] for index in indices)
        found = Predictions(labels, indices, probabilities, indices.float(), torch.from_numpy(logits))
        batch = PredictedBatch(torch.arange(120), found, torch.from_numpy(files.y))
        paths.append(tmp_path / f"{name}{suffix}")
        with open_output(paths[-1], names, labelled=True) as add:
            add(batch)
    arguments = [paths[0], "--teacher", paths[1], "--labels", paths[0], "--probabilities"]
    result = run(*arguments, "--json", tmp_path / "out.json")
    assert result.exit_code == 0, result.exception
    assert run(*files.arguments(), "--json", tmp_path / "plain.json").exit_code == 0
    plain, found = (json.loads((tmp_path / name).read_text())["students"][0] for name in ("plain.json", "out.json"))
    assert found["competence"] == plain["competence"]
    assert found["all"] == pytest.approx(plain["all"], rel=1e-4)  # float32 probabilities


class Trap:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-9])


HOSTILE = {
    "code.pt": lambda path, z: torch.save({"logits": Trap(path.parent / "ran")}, path),
    "pickle.pth": lambda path, z: path.write_bytes(pickle.dumps(Trap(path.parent / "ran"))),
    "short.pt": lambda path, z: (torch.save(z, path), cut_short(path)),
    "weights.pth": lambda path, z: torch.save({"fc.weight": z, "fc.bias": z}, path),
    "nul.csv": lambda path, z: path.write_bytes(b"a,b,c\n1,\0,3\n"),
    "line.csv": lambda path, z: path.write_bytes(b"1," * (9 << 20)),
    "field.tsv": lambda path, z: path.write_text("a\tb\n" + "1" * 200_000 + "\t2\n"),
    "binary.csv": lambda path, z: path.write_bytes(bytes(range(256)) * 9),
    "text.csv": lambda path, z: path.write_text("a,b,c\n1,two,3\n"),
    "short.parquet": lambda path, z: (parquet.write_table(pa.table({"logits": z.tolist()}), path), cut_short(path)),
    "texts.parquet": lambda path, z: parquet.write_table(pa.table({"logits": ["a"] * 120}), path),
    "nested.parquet": lambda path, z: parquet.write_table(pa.table({"logits": [[[1.0]]] * 120}), path),
    "columns.parquet": lambda path, z: parquet.write_table(pa.table({"a": [1.0], "b": ["x"]}), path),
    "rows.parquet": lambda path, z: parquet.write_table(pa.table({"logits": z[:7].tolist()}), path),
    "missing.parquet": lambda path, z: None,
    "missing.txt": lambda path, z: None,
}


@pytest.mark.parametrize("place", ["student", "teacher", "labels"])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_one_line_and_exit_2_wherever_it_is_given(files, tmp_path, capsys, monkeypatch, name, place):
    HOSTILE[name](tmp_path / name, torch.from_numpy(files.z))
    paths = {"student": files.student, "teacher": files.teacher, "labels": files.labels, place: tmp_path / name}
    options = ["--teacher", str(paths["teacher"]), "--labels", str(paths["labels"])]
    code, out, err = run_main(capsys, monkeypatch, "diagnose", str(paths["student"]), *options)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("tpkd: ")
    assert str(tmp_path / name) in err
    assert len(err) < 1_000
    assert not (tmp_path / "ran").exists()
