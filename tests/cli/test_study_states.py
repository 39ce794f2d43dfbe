"""The authors' road: checkpoints of another code base give the paper's tables by two commands."""

import csv
import re

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import oracles
import tpkd
from mechanism.foreign import ROAD, digits, load_there, train_there
from mechanism.test_exact_head import plain_directions
from tpkd.cli.main import app
from tpkd.cli.study import study
from tpkd.errors import InputError
from tpkd.mechanism.record import BlockingRecord, CertificatesRecord, ContinuationRecord, ExactHeadRecord

STATES = ["--state", "CE8=ce8.pth", "--state", "CE20=ce20.pth"]


@pytest.fixture(scope="module")
def road(tmp_path_factory):
    """Their checkpoints, a configuration of ours, and their teacher."""
    directory = tmp_path_factory.mktemp("road")
    teacher = train_there(directory)
    (directory / "mine.yaml").write_text(ROAD)
    return directory, teacher


@pytest.fixture
def here(road, monkeypatch):
    monkeypatch.chdir(road[0])
    return road[0]


def run(*arguments):
    result = CliRunner().invoke(app, ["study", *arguments])
    assert result.exit_code == 0, f"{result.output}\n{result.exception}"
    return result.output


def read_table(path):
    """The rows of a CSV file by their first cells, and its headings."""
    with path.open(newline="") as file:
        headings, *rows = csv.reader(file)
    return headings, rows


def test_two_commands_write_the_columns_of_the_paper(here):
    """tab:states and tab:exact, in every format."""
    paper = {
        "blocking": ("student state", "blocked (%)", "remaining conditional KL", "minimum log-odds cost"),
        "exact-head": (
            "state",
            "gain (10⁻³)",
            "KL change (10⁻³)",
            "min. retained (%)",
            "min. cosine",
            "Φ change (10⁻³)",
        ),
    }
    for name, columns in paper.items():
        printed = run(name, "mine.yaml", *STATES)
        assert "written: mine/studies/given/" in printed
        assert "Weights from files: CE8 (ce8.pth), CE20 (ce20.pth)." in printed
        headings, rows = read_table(here / f"mine/studies/given/{name}.csv")
        assert [column for column in headings if column in columns] == list(columns)
        assert list(dict.fromkeys(row[0] for row in rows)) == ["CE8", "CE20"]
        markdown = (here / f"mine/studies/given/{name}.md").read_text()
        latex = (here / f"mine/studies/given/{name}.tex").read_text()
        for row in rows:
            assert f"| {' | '.join(row)} |" in markdown
            assert f"{row[0]} & " in latex
        assert r"\toprule" in latex


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("state", [8, 20])
def test_states_table_has_the_numbers_of_plain_torch(here, road, split, state):
    run("blocking", "mine.yaml", *STATES)
    images, labels = digits(split)
    with torch.no_grad():
        student, teacher = load_there(here / f"ce{state}.pth")(images), road[1](images)
    found = tpkd.diagnose(student.double(), teacher.double(), labels)
    blocked = found.blocked
    assert 0 < blocked.sum() < len(blocked)
    _, rows = read_table(here / "mine/studies/given/blocking.csv")
    (row,) = [row for row in rows if row[:2] == [f"CE{state}", split]]
    expected = [100 * blocked.double().mean(), found.conditional_loss[blocked].mean()]
    expected.append(found.transfer_cost[blocked].mean())
    assert int(row[2].replace(",", "")) == len(labels)
    for shown, number in zip(row[3:6], expected, strict=True):
        # One unit of the last digit that the table shows.
        assert float(shown) == pytest.approx(float(number), abs=0.011 if number is expected[0] else 0.0011)


def test_exact_table_has_the_numbers_of_a_plain_pseudoinverse(here, road):
    run("exact-head", "mine.yaml", *STATES, "study.exact_head.batches=3")
    record = ExactHeadRecord.from_json((here / "mine/studies/given/exact-head.json").read_text())
    _, rows = read_table(here / "mine/studies/given/exact-head.csv")
    for state, shown in zip(record.states, rows, strict=True):
        student = load_there(here / f"ce{state.state.name[2:]}.pth")
        gains, changes, potentials, kept, cosines = [], [], [], [], []
        for batch in state.batches:
            images, labels = digits("train", batch.sample_ids)
            with torch.no_grad():
                X = np.hstack([student.backbone(images).double().numpy(), np.ones((len(images), 1))])
                teachers = road[1](images).double().numpy()
            head = student.classifier
            A = np.vstack([head.weight.detach().double().numpy().T, head.bias.detach().double().numpy()])
            z, cases = X @ A, labels.tolist()
            rows_of = [plain_directions(*case) for case in zip(z, teachers, cases, strict=True)]
            ends = {
                name: X @ (A - 0.01 * np.linalg.pinv(X) @ np.stack([row[name] for row in rows_of]))
                for name in ("ce", "tpkd")
            }
            losses = {
                name: np.array([oracles.conditional_loss(*case) for case in zip(end, teachers, cases, strict=True)])
                for name, end in {"start": z, **ends}.items()
            }
            labelled = {
                name: np.array([oracles.label_loss(*case) for case in zip(end, cases, strict=True)])
                for name, end in {"start": z, **ends}.items()
            }
            gains.append((losses["ce"] - losses["tpkd"]).mean())
            changes.append((losses["tpkd"] - losses["start"]).mean())
            for z_row, teacher, label in zip(z, teachers, cases, strict=True):
                found = oracles.directions(z_row, teacher, label)
                h, u, d = found["label"], found["conditional"], found["safe"]
                g, v = 4 * h + u, h + d / 2
                kept.append(u @ d / (u @ u))
                cosines.append(g @ v / np.sqrt((g @ g) * (v @ v)))
            potential = {name: 4 * labelled[name] + losses[name] for name in losses}
            potentials.append((potential["tpkd"] - potential["start"]).mean())
        for cell, expected in ((1, gains), (2, changes), (5, potentials)):
            assert float(shown[cell].replace("−", "-")) == pytest.approx(1000 * np.mean(expected), abs=0.0011)
        assert float(shown[3]) == pytest.approx(100 * min(kept), abs=0.011)
        assert float(shown[4]) == pytest.approx(min(cosines), abs=0.00011)
        assert state.gain > 0


def test_optimiser_states_are_used_where_they_are_given(here):
    """Certificates and continuation, with the moments in their own order, and without."""
    small = ["study.certificates.batches=2", "study.continuation.iterations=2", "study.continuation.observation=50"]
    given = ["--optimizer-state", "CE20=ce20.pth"]
    run("certificates", "mine.yaml", *small, *STATES, *given)
    record = CertificatesRecord.from_json((here / "mine/studies/given/certificates.json").read_text())
    assert [state.state.optimizer for state in record.states] == ["fresh", "ce20.pth"]
    assert [state.state.epoch for state in record.states] == [None, None]
    table = (here / "mine/studies/given/certificates.md").read_text()
    assert "No optimiser state is known for CE8: training iterations start there without momentum" in table
    assert "Optimiser states from files: CE20 (ce20.pth)." in table
    with_history = run("continuation", "mine.yaml", *small, *STATES[2:], *given)
    first = ContinuationRecord.from_json((here / "mine/studies/given/continuation.json").read_text())
    without = run("continuation", "mine.yaml", *small, *STATES[2:])
    second = ContinuationRecord.from_json((here / "mine/studies/given/continuation.json").read_text())
    assert (first.state.optimizer, second.state.optimizer) == ("ce20.pth", "fresh")
    assert first.start == second.start
    assert first.tpkd_end != second.tpkd_end
    assert "No optimiser state is known" in without
    assert "No optimiser state is known" not in with_history


def test_a_record_elsewhere_leaves_other_files_alone(here, tmp_path):
    (tmp_path / "notes.md").write_text("mine")
    run("blocking", "mine.yaml", *STATES[:2], "study.blocking.samples=5", "--out", str(tmp_path / "notes.json"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.json", "notes.md"]
    assert (tmp_path / "notes.md").read_text() == "mine"
    record = BlockingRecord.from_json((tmp_path / "notes.json").read_text())
    assert [state.state.file for state in record.splits[0].states] == ["ce8.pth"]


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("blocking", ["--state", "ce8.pth"], "--state: expected NAME=PATH, such as CE20=weights.safetensors, found"),
        ("blocking", ["--state", "=ce8.pth"], "--state: expected NAME=PATH"),
        ("blocking", [*STATES, "--state", "CE8=ce20.pth"], "--state: expected every name once, found CE8 twice"),
        ("blocking", ["--state", "A=none.pth"], r"none\.pth: cannot be read"),
        ("blocking", ["--state", "A=."], r"expected a file, or a directory step-NNNNNN"),
        (
            "blocking",
            [*STATES, "student.weight_map={}"],
            r"missing fc\.bias.*weight_map: \{backbone\.stem: layers\.0, classifier: fc\}$",
        ),
        ("blocking", [*STATES, "student.weight_map={clasifier: fc}"], "'clasifier' matches no name, did you mean"),
        ("blocking", [*STATES, "student.options.hidden=[81]"], r"layers\.0\.weight: expected shape \(81, 64\), found"),
        ("blocking", [*STATES, "--optimizer-state", "CE8=ce8.pth"], "CE8: expected none, because blocking takes"),
        ("certificates", [*STATES, "--optimizer-state", "CE3=ce8.pth"], "CE3: expected a --state, found CE8, CE20"),
        ("certificates", [*STATES, "--optimizer-state", "CE8=teacher.pt"], r"teacher\.pt: expected the state dict of"),
        ("continuation", STATES, "--state: expected one state, .* found CE8, CE20"),
        ("blocking", [], "expected a run of 'ce' with snapshots|snapshots: missing.*--state NAME=WEIGHTS"),
    ],
)
def test_mistakes_are_one_line(here, name, arguments, message):
    result = CliRunner().invoke(study, [name, "mine.yaml", *arguments])
    assert isinstance(result.exception, InputError), result.output
    assert re.search(message, str(result.exception)), str(result.exception)
    assert "\n" not in str(result.exception)


def test_weights_that_are_no_numbers_are_one_line(here, tmp_path):
    state = torch.load(here / "ce8.pth", weights_only=True)["state_dict"]
    state["module.classifier.bias"][3] = torch.nan
    torch.save(state, tmp_path / "nan.pth")
    result = CliRunner().invoke(study, ["blocking", "mine.yaml", "--state", f"A={tmp_path / 'nan.pth'}"])
    assert isinstance(result.exception, InputError)
    assert re.search(r"nan\.pth: fc\.bias: expected finite numbers, found nan", str(result.exception))


def test_classes_in_another_order_are_refused(here, tmp_path):
    from safetensors.torch import save_file

    state = torch.load(here / "ce8.pth", weights_only=True)["state_dict"]
    names = ["1", "0", *map(str, range(2, 10))]
    metadata = {"class_names": str(names).replace("'", '"')}
    save_file({name: value.clone() for name, value in state.items()}, tmp_path / "ce8.safetensors", metadata)
    result = CliRunner().invoke(study, ["blocking", "mine.yaml", "--state", f"A={tmp_path / 'ce8.safetensors'}"])
    assert re.search(r"class 0: expected '0' as in digits, found '1'.*another order", str(result.exception))
