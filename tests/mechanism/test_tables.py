"""The tables of the studies: the paper's numbers beside studies of its own sizes alone, and nothing left unsaid."""

import dataclasses
from pathlib import Path

import pytest

from compare.cases import cell, comparison
from tpkd.compare.record import PaperProtocol, ReportRecords
from tpkd.compare.reporting import catalogue
from tpkd.mechanism.record import BlockingRecord, CertificatesRecord, ContinuationRecord, ExactHeadRecord, states_of
from tpkd.mechanism.tables import mechanism_tables, study_notes, study_table

STUDIES = Path(__file__).parents[2] / "results" / "mechanism-vision" / "ce-42" / "studies"
KINDS = {
    "blocking": BlockingRecord,
    "exact-head": ExactHeadRecord,
    "certificates": CertificatesRecord,
    "continuation": ContinuationRecord,
}


def kept(name):
    return KINDS[name].from_json((STUDIES / f"{name}.json").read_text())


def as_in_the_paper(name):
    """The kept record with the sizes of the paper in place of its own."""
    record = dataclasses.replace(kept(name), scalings=())

    def state(each, epoch):
        return dataclasses.replace(each, state=dataclasses.replace(each.state, name=f"CE{epoch}", epoch=epoch))

    if name == "blocking":
        splits = tuple(
            dataclasses.replace(
                split,
                num_views=8,
                sample_ids=tuple(range(2000)),
                states=tuple(state(each, epoch) for each, epoch in zip(split.states, (20, 40, 60), strict=False)),
            )
            for split in record.splits
        )
        return dataclasses.replace(record, splits=splits)
    if name == "continuation":
        (point,) = record.curves[0].points[:1]
        points = tuple(dataclasses.replace(point, iteration=at) for at in (0, 1, 8, 32, 64, 128))
        curves = tuple(dataclasses.replace(curve, points=points) for curve in record.curves)
        sizes = {"iterations": 128, "batch_size": 64, "learning_rate": 1e-4}
        observed = tuple(range(2048))
        last = dataclasses.replace(record.state, name="CE60", epoch=60)
        return dataclasses.replace(
            record, **sizes, curves=curves, observation_ids=observed, observation_views=observed, state=last
        )
    count = {"exact-head": 32, "certificates": 16}[name]
    states = tuple(
        dataclasses.replace(state(record.states[0], epoch), batches=record.states[0].batches[:1] * count)
        for epoch in (20, 60)
    )
    own = {"step_size": 0.01} if name == "exact-head" else {"learning_rate": 1e-4, "microbatch": 8}
    native = {} if name == "exact-head" else {"native_microbatch": 32}
    return dataclasses.replace(record, states=states, batch_size=64, **own, **native)


def table_of(record, name, paper=True):
    protocol = PaperProtocol("vision", () if paper else ("epochs: expected 60, found 3",))
    records = ReportRecords(
        catalogue(), comparison([cell("ce", 42, 0.8)], paper=protocol), **{name.replace("-", "_"): record}
    )
    (table,) = mechanism_tables(records.studies, records.paper_domain, records.methods.title)
    return table


def shows_the_paper(table):
    return any("paper" in column.title for column in table.columns) or any("Paper: " in note for note in table.notes)


OTHER = {
    "blocking": {"study_seed": 1, "tolerance": 1e-6},
    "exact-head": {"step_size": 0.02, "batch_size": 32, "beta": 1.0},
    "certificates": {"batch_size": 32, "microbatch": 4, "learning_rate": 1e-3, "rank_tolerance": 1e-9, "beta": 1.0},
    "continuation": {"iterations": 64, "batch_size": 32, "learning_rate": 1e-3, "beta": 1.0},
}


@pytest.mark.parametrize("name", KINDS)
def test_the_papers_numbers_stand_beside_a_study_of_its_sizes(name):
    assert shows_the_paper(table_of(as_in_the_paper(name), name))
    assert not shows_the_paper(table_of(as_in_the_paper(name), name, paper=False))


@pytest.mark.parametrize(("name", "field"), [(name, field) for name, changes in OTHER.items() for field in changes])
def test_a_study_of_other_sizes_has_no_numbers_of_the_paper_beside_it(name, field):
    table = table_of(dataclasses.replace(as_in_the_paper(name), **{field: OTHER[name][field]}), name)
    assert not shows_the_paper(table)
    assert any("paper's numbers are left out" in note and field in note for note in table.notes)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(("field", "value"), [("seed", 43), ("objective", "kd")])
def test_a_study_of_another_run_has_no_numbers_of_the_paper_beside_it(name, field, value):
    record = as_in_the_paper(name)
    other = dataclasses.replace(record, source=dataclasses.replace(record.source, **{field: value}))
    assert not shows_the_paper(table_of(other, name))


@pytest.mark.parametrize("name", ["certificates", "continuation"])
def test_iterations_that_mixed_precision_left_out_are_said(name):
    record = kept(name)
    assert not any("left out" in note for note in study_table(record, str).notes)
    if name == "certificates":
        states = (dataclasses.replace(record.states[0], skipped_steps=3), *record.states[1:])
        record = dataclasses.replace(record, states=states)
    else:
        curves = (dataclasses.replace(record.curves[0], skipped_steps=3), *record.curves[1:])
        record = dataclasses.replace(record, curves=curves)
    assert any("3 of" in note and "left out" in note for note in study_table(record, str).notes)


def test_a_violation_without_a_number_is_said():
    record = kept("exact-head")
    check = dataclasses.replace(record.checks[0], violations=2, worst=None)
    lines = list(study_notes(dataclasses.replace(record, checks=(check,))))
    assert any(line.startswith("VIOLATION") and "not a number" in line for line in lines)


@pytest.mark.parametrize("name", KINDS)
def test_states_from_files_are_named_in_the_notes(name):
    record = kept(name)
    assert not [note for note in study_table(record, str.upper).notes if "files" in note or "optimiser" in note]

    def given(state, optimizer):
        return dataclasses.replace(state, file=f"{state.name}.pth", optimizer=optimizer)

    if name == "blocking":
        splits = tuple(
            dataclasses.replace(
                split,
                states=tuple(dataclasses.replace(each, state=given(each.state, None)) for each in split.states),
            )
            for split in record.splits
        )
        record = dataclasses.replace(record, splits=splits)
    elif name == "continuation":
        record = dataclasses.replace(record, state=given(record.state, "moments.pt"))
    else:
        states = [
            dataclasses.replace(state, state=given(state.state, "fresh" if index else None))
            for index, state in enumerate(record.states)
        ]
        record = dataclasses.replace(record, states=tuple(states))
    notes = " ".join(study_table(record, str.upper).notes)
    names = [state.name for state in states_of(record)]
    assert f"Weights from files: {', '.join(f'{each} ({each}.pth)' for each in names)}." in notes
    if name == "continuation":
        assert f"Optimiser states from files: {names[0]} (moments.pt)." in notes
    elif name != "blocking":
        assert f"No optimiser state is known for {', '.join(names[1:])}: training iterations start there" in notes
