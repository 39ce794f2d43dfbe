"""Methods × domains: every number is that of the comparison it comes from."""

from dataclasses import replace

from compare.domains.cases import two_domains
from compare.owner.cases import with_estimate
from tpkd.compare.domains.tables import (
    best_methods,
    claims_overview,
    controls_table,
    differences_table,
    domain_tables,
    facts_table,
    main_table,
)
from tpkd.compare.record import SELECTED
from tpkd.report.tables import Number, parts, text

SKILLS = {"ce": 1.0, "kd": 1.5, "tpkd": 3.0}
RECORDS = two_domains(SKILLS, {"ce": 1.0, "kd": 3.0, "safe-full-kl": 0.5}, teacher=2.0, start=0.25)


def rows(table):
    return {text(row[0]): [text(cell) for cell in row[1:]] for row in table.rows}


def numbers(table):
    return [part for row in table.rows for cell in row for part in parts(cell) if isinstance(part, Number)]


def test_the_main_table_has_the_papers_layout():
    table = main_table(RECORDS)
    assert [column.title for column in table.columns] == ["method", "toys, 3 epochs", "texts, 3 epochs"]
    found = rows(table)
    assert list(found) == ["CE", "KD", "TPKD"]
    method = RECORDS.domains[1].comparison.methods[1]
    assert found["KD"][1] == f"{100 * method.mean:.2f} ± {100 * method.standard_deviation:.2f}"
    assert found["TPKD"][1] == ""
    assert "Largest mean by domain: toys: TPKD; texts: KD." in table.notes
    assert list(rows(controls_table(RECORDS))) == ["Safe full-KL"]
    assert controls_table(two_domains(SKILLS, SKILLS)) is None


def test_every_number_knows_its_domain():
    for table in domain_tables(RECORDS).values():
        for number in numbers(table):
            head, place, rest = number.path.split(".", 2)
            found = RECORDS.domains[int(place)]
            for key in rest.split("."):
                found = found[int(key)] if isinstance(found, tuple) else getattr(found, key)
            assert (head, number.value) == ("domains", found)


def test_a_row_is_bold_only_if_it_is_best_everywhere():
    assert main_table(RECORDS).emphasis == frozenset()
    assert main_table(two_domains(SKILLS, SKILLS)).emphasis == {2}


def test_means_over_different_seeds_have_no_largest():
    records = two_domains(SKILLS, SKILLS)
    record = records.domains[1].comparison
    fewer = replace(record.methods[0], seeds=record.methods[0].seeds[:2])
    uneven = replace(records.domains[1], comparison=replace(record, methods=(fewer, *record.methods[1:])))
    records = replace(records, domains=(records.domains[0], uneven))
    assert best_methods(records, 1, list(SKILLS)) == []
    assert (
        "texts: means are over different seeds; compare methods by their paired differences."
        in main_table(records).notes
    )


def test_selected_students_are_stamped():
    records = two_domains(SKILLS, SKILLS)
    chosen = replace(records.domains[1].comparison, selection="best-validation")
    second = replace(records.domains[1], comparison=chosen)
    notes = main_table(replace(records, domains=(records.domains[0], second))).notes
    assert f"texts: {SELECTED}" in notes
    assert not any(note.startswith("toys: Students") for note in notes)


def test_differences_have_both_intervals_and_a_verdict_in_each_domain():
    decided = with_estimate(RECORDS.domains[0], "kd", seed_low=0.1, seed_high=0.2, sample_low=0.05, sample_high=0.3)
    table = differences_table(replace(RECORDS, domains=(decided, RECORDS.domains[1])))
    both = ["over seeds", "over test samples", "verdict"]
    assert [column.title for column in table.columns] == [
        "method",
        *("toys: minus CE (points)", *both),
        *("texts: minus CE (points)", *both),
    ]
    assert rows(table)["KD"][1:4] == ["[+10.00, +20.00]", "[+5.00, +30.00]", "above CE"]
    assert rows(table)["TPKD"][4:] == [""] * 4
    assert "CE" not in rows(table)
    bare = differences_table(two_domains(SKILLS, SKILLS, kept=False))
    assert [column.title for column in bare.columns].count("over test samples") == 0
    assert differences_table(two_domains({"tpkd": 1.0}, {"tpkd": 1.0})) is None


def test_claims_are_one_row_with_the_verdict_of_each_domain():
    found = rows(claims_overview(RECORDS))
    assert found["TPKD ends above KD"][1] == ""
    assert ": TPKD − KD: +" in found["TPKD ends above KD"][0]
    assert claims_overview(two_domains({"ce": 1.0}, {"ce": 1.0})) is None


def test_facts_name_data_networks_and_seeds():
    (first, _) = facts_table(RECORDS).rows
    said = [text(cell) for cell in first]
    assert said[:4] == ["toys", "one", "toys: 100 / 400 samples, 4 classes", "builtin:mlp, 25.00 %"]
    assert said[5:] == ["1, 2, 3", "its own"]
