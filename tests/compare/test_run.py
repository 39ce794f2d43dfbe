"""A grid end to end, in small: what its record says, what runs again and what is refused."""

import errno
import hashlib
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from compare.grids import logits_of
from demo.small_demo import GRID, SEEDS, inline_jobs, small_demo
from tpkd.compare import run as comparison
from tpkd.compare.record import ComparisonRecord, PaperProtocol
from tpkd.compare.run import Watcher, compare, open_grid, read_comparison
from tpkd.config.loading import load_config
from tpkd.demo.run import CONFIGS
from tpkd.errors import InputError
from tpkd.objectives import names
from tpkd.training.directory import read_result
from tpkd.training.loop import snapshot_states


@pytest.fixture(scope="module")
def made():
    return small_demo().report.parent


@pytest.fixture(scope="module")
def record(made):
    return read_comparison(made)


def places(directory, output=None):
    return [
        f"output={output or directory}/{{objective}}/seed-{{seed}}",
        f"teacher.weights={directory}/teacher/student.safetensors",
        f"teacher.cache={directory}/cache",
    ]


def test_summaries_are_those_of_the_cells(record):
    for method in record.methods:
        values = [cell.accuracy for cell in record.cells if cell.objective == method.objective]
        assert method.accuracies == tuple(values)
        assert method.mean == pytest.approx(np.mean(values))
        assert method.standard_deviation == pytest.approx(np.std(values, ddof=1))
        for pair in method.versus:
            reference = [cell.accuracy for cell in record.cells if cell.objective == pair.reference]
            assert pair.differences == pytest.approx(np.subtract(values, reference))
        assert {pair.reference for pair in method.versus} == {"kd", "ce", "tpkd"} - {method.objective}


def test_cells_share_data_teacher_and_start(made, record):
    results = [read_result(made / cell.directory) for cell in record.cells]
    assert {result.data_fingerprint for result in results} == {record.data.fingerprint}
    assert {result.teacher_fingerprint for result in results} == {record.teacher.fingerprint}
    selecting = {result.initial_fingerprint for result in results if result.initial_fingerprint}
    assert selecting == {record.start.fingerprint}


def test_finished_cells_keep_no_checkpoints_but_whole_snapshots(made, record):
    assert not [cell.name for cell in record.cells if (made / cell.directory / "checkpoints").exists()]
    assert (made / "teacher" / "checkpoints").exists(), "a run of its own keeps them"
    assert snapshot_states(made / "ce" / f"seed-{SEEDS[0]}", 6).load().groups["optimizer"]


def test_dp_u_is_kl_dist_bit_for_bit_where_the_teacher_always_wins(made, record):
    """Appendix "Experimental protocols": with a rate of 100 % in every epoch the final logits are identical."""
    cells = {(cell.objective, cell.seed): cell for cell in record.cells}
    for seed in SEEDS:
        assert cells["dp-u", seed].selection_rates == (1.0,) * 6
        first, second = (logits_of(made, cells[name, seed]) for name in ("dp-u", "kl-dist"))
        assert np.array_equal(first, second)
    assert [(group.seed, group.objectives) for group in record.identical] == [(s, ("kl-dist", "dp-u")) for s in SEEDS]
    assert all(cell.selection_rates is None for cell in record.cells if not cell.objective.startswith("dp-"))


def test_the_record_reads_back_and_holds_the_resolved_protocol(made, record):
    assert ComparisonRecord.from_json(record.to_json()) == record
    assert record.protocol["epochs"] == 6
    assert record.protocol["student.head"] == "random"
    assert "output" not in record.protocol
    settings = {method.objective: method for method in record.settings}
    assert list(settings) == list(names())
    assert settings["dkd"].settings["warmup_epochs"] == 4
    assert [name for name, found in settings.items() if found.optimizer["weight_decay"] == 1e-4] == ["xe-kl"]
    assert settings["xe-kl"].overrides == {"optimizer.weight_decay": 1e-4}
    assert settings["kd"].settings == {"temperature": 4.0, "ce_weight": 1.0, "kd_weight": 1.0}
    assert sum(len(group.cells) for group in record.environments) == len(record.cells)


@pytest.fixture
def small(tmp_path, made, monkeypatch):
    """A grid of CE and TPKD over two seeds, copied from the finished one; and the names of what runs now."""
    for name in ("ce", "tpkd"):
        shutil.copytree(made / name, tmp_path / name)
        for path in (made / "students").glob(f"{name}-*"):
            (tmp_path / "students").mkdir(exist_ok=True)
            shutil.copy(path, tmp_path / "students")
    ran = []

    def noting(executor, jobs, on_event):
        ran.extend(jobs)
        inline_jobs(executor, jobs, on_event)

    monkeypatch.setattr(comparison, "run_jobs", noting)

    def run(*overrides, methods=("ce", "tpkd"), seeds=SEEDS, **rest):
        ran.clear()
        everything = [*places(made, output=tmp_path), *GRID, *overrides]
        grid = open_grid(CONFIGS / "demo.yaml", everything, methods=list(methods), seeds=list(seeds))
        return compare(grid, processes=1, **rest), list(ran)

    return run


def fingerprints(directory):
    return {path: hashlib.sha256(path.read_bytes()).digest() for path in directory.rglob("*") if path.is_file()}


def test_finished_cells_never_run_again(small, tmp_path):
    before = fingerprints(tmp_path / "ce") | fingerprints(tmp_path / "tpkd")
    record, ran = small()
    assert ran == []
    assert {cell.status for cell in record.cells} == {"finished"}
    record, ran = small(methods=("tpkd",), seeds=(42, 44))
    assert ran == ["tpkd-44"]
    assert {path: digest for path, digest in fingerprints(tmp_path).items() if path in before} == before
    logs = [path.read_text() for path in tmp_path.rglob("run.log")]
    assert all(log.count("started") == 1 for log in logs)
    # What an earlier call has put there stays in the tables; what nobody has asked for is not missed.
    assert (record.objectives, record.seeds) == (("ce", "tpkd"), (42, 43, 44))
    assert [cell.status for cell in record.cells] == ["finished"] * 5
    assert [(method.seeds, method.missing_seeds) for method in record.methods] == [((42, 43), ()), ((42, 43, 44), ())]
    # What a call that was killed has started is there again, done or not.
    started = tmp_path / "ce" / "seed-44"
    started.mkdir(parents=True)
    earlier = (tmp_path / "ce" / "seed-43" / "config.yaml").read_text()
    (started / "config.yaml").write_text(earlier.replace("seed: 43", "seed: 44"))
    record, ran = small(methods=("tpkd",), seeds=(42,))
    assert ran == []
    assert record.methods[0].missing_seeds == (44,)


def test_the_papers_seeds_are_looked_for_in_every_objective(small, monkeypatch):
    small()
    monkeypatch.setattr(comparison, "paper_protocol", lambda _, seeds: PaperProtocol(None, (str(seeds),)))
    record, _ = small(methods=("tpkd",), seeds=(42, 44))
    assert record.paper.differences == ("{'ce': (42, 43), 'tpkd': (42, 43, 44)}",)


def test_records_alone_are_enough_to_go_on(small, tmp_path):
    """What is large need not travel: weights, snapshots, logits."""
    whole, _ = small()
    large = [path for pattern in ("*.safetensors", "*.npy") for path in tmp_path.rglob(pattern)]
    assert large
    for path in large:
        path.unlink()
    record, ran = small()
    assert ran == []
    assert record == whole


def test_a_cell_whose_logits_were_not_kept_keeps_them_now(small, tmp_path):
    whole, _ = small()
    (tmp_path / "students" / "ce-43.sha256").unlink()
    record, ran = small()
    assert ran == ["ce-43"]
    assert record == whole


def test_a_teacher_may_be_a_cache_and_its_answers_to_the_test_split(small, made, tmp_path):
    known = small()[0].teacher
    for name in ("ce", "tpkd"):
        shutil.rmtree(tmp_path / name)
    (tmp_path / "comparison.json").unlink()
    teacher = ("teacher.model=null", "teacher.weights=null", "teacher.options={}", "epochs=1", "snapshots=[]")
    record, ran = small(*teacher, f"teacher.test_logits={made / 'teacher.npy'}", methods=("ce",), seeds=(42,))
    assert ran == ["ce-42"]
    assert record.teacher.accuracy == pytest.approx(known.accuracy, rel=1e-6)  # one of them is averaged in float32
    assert record.teacher.label_loss == pytest.approx(known.label_loss, rel=1e-5)
    assert record.cells[0].final is not None
    np.save(tmp_path / "short.npy", np.zeros((3, 10), np.float32))
    with pytest.raises(
        InputError, match=r"teacher.test_logits: .*short.npy: expected shape \(\d+, 10\), found \(3, 10\)"
    ):
        small(*teacher, f"teacher.test_logits={tmp_path / 'short.npy'}", methods=("ce",), seeds=(42,))
    logits = np.load(made / "teacher.npy")
    np.save(tmp_path / "cut.npy", np.where((-logits).argsort(1).argsort(1) < 3, logits, np.float32(-1e4)))
    with pytest.raises(InputError, match=r"teacher.test_logits: .*cut.npy: .* cut to its top classes"):
        small(*teacher, f"teacher.test_logits={tmp_path / 'cut.npy'}", methods=("ce",), seeds=(42,))


def test_a_failed_cell_is_marked_stops_nothing_and_runs_again(small, tmp_path):
    shutil.rmtree(tmp_path / "ce" / "seed-43")
    shutil.rmtree(tmp_path / "tpkd" / "seed-43")
    (tmp_path / "ce" / "seed-43").mkdir()
    (tmp_path / "ce" / "seed-43" / "thesis.tex").write_text("mine")
    record, ran = small()
    assert ran == ["ce-43", "tpkd-43"]
    failed = [cell for cell in record.cells if cell.status == "failed"]
    assert [(cell.objective, cell.seed) for cell in failed] == [("ce", 43)]
    assert "thesis.tex" in failed[0].problem
    assert "thesis.tex" in (tmp_path / "failures" / "ce-43.txt").read_text()
    (tmp_path / "ce" / "seed-43" / "thesis.tex").unlink()
    record, ran = small()
    assert ran == ["ce-43"]
    assert {cell.status for cell in record.cells} == {"finished"}
    assert not (tmp_path / "failures" / "ce-43.txt").exists()


def test_a_disk_that_fills_up_leaves_finished_cells_as_they_are(small, tmp_path, monkeypatch):
    for name in ("ce", "tpkd"):
        shutil.rmtree(tmp_path / name / "seed-43")
    sync, full = os.fsync, []

    def fsync(descriptor):
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    def fills_up(event):
        if event.kind == "finished":
            full.append(event.job)

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fsync)
        with pytest.raises(InputError, match="No space left on device"):
            small(watcher=Watcher(on_cell=fills_up))
    assert full == ["ce-43"]
    kept = fingerprints(tmp_path / "ce")
    record, ran = small()
    assert ran == ["tpkd-43"]
    assert {cell.status for cell in record.cells} == {"finished"}
    assert fingerprints(tmp_path / "ce") == kept


def test_a_grid_changed_under_its_directory_is_refused_or_put_aside(small, tmp_path):
    small()
    with pytest.raises(InputError, match=r"optimizer.momentum: expected 0.9, found 0.5.*\(and 3 more\)"):
        small("optimizer.momentum=0.5")
    record, ran = small("optimizer.momentum=0.5", restart_changed=True)
    assert ran == ["ce-42", "ce-43", "tpkd-42", "tpkd-43"]
    assert record.protocol["optimizer.momentum"] == 0.5
    assert (tmp_path / "ce" / "seed-42.replaced-1" / "result.json").exists()


def test_a_cell_that_has_no_checkpoint_does_not_hold_up_a_changed_grid(small, tmp_path):
    directory = tmp_path / "tpkd" / "seed-43"
    (directory / "result.json").unlink()
    config = (directory / "config.yaml").read_text()
    (directory / "config.yaml").write_text(config.replace("momentum: 0.9", "momentum: 0.8"))
    record, ran = small()
    assert ran == ["tpkd-43"]
    assert {cell.status for cell in record.cells} == {"finished"}
    assert "momentum: 0.8" in (directory / "abandoned-1" / "config.yaml").read_text()


def test_cells_of_another_teacher_are_refused(small, tmp_path, made):
    path = tmp_path / "tpkd" / "seed-42" / "result.json"
    path.write_text(path.read_text().replace('"teacher_fingerprint": "', '"teacher_fingerprint": "0'))
    with pytest.raises(InputError, match=r"tpkd.seed-42: teacher_fingerprint: expected"):
        small()


def test_settings_of_every_cell_are_checked_before_the_first_runs(made, tmp_path):
    overrides = [*places(made, output=tmp_path), *GRID, "methods.tpkd={objective.settings: {gamma: 1}}"]
    with pytest.raises(InputError, match="gamma"):
        compare(open_grid(CONFIGS / "demo.yaml", overrides, methods=["ce", "tpkd"]), processes=1)
    assert list(tmp_path.iterdir()) == []


def test_the_demo_configurations_are_shipped_with_the_package_and_beside_the_others():
    shipped = Path(__file__).resolve().parents[2] / "configs"
    for name in ("demo.yaml", "demo-teacher.yaml"):
        assert load_config(shipped / name) == load_config(CONFIGS / name)
