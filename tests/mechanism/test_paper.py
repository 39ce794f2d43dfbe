"""What is not as in the paper's appendix is named, and nothing else."""

import dataclasses

import pytest

from mechanism.test_tables import KINDS, as_in_the_paper
from tpkd.geometry import PAPER_BETA
from tpkd.mechanism import paper
from tpkd.mechanism.paper import departures


@pytest.mark.parametrize("name", KINDS)
def test_only_what_differs_is_named(name):
    record = as_in_the_paper(name)
    assert departures(record) == ()
    assert departures(dataclasses.replace(record, study_seed=3)) == ("study_seed: expected 0, found 3",)


def test_tables_that_load_no_torch_use_the_coefficient_of_the_mathematics():
    assert paper.PAPER_BETA == PAPER_BETA


def test_a_state_from_a_file_is_not_the_papers():
    record = as_in_the_paper("continuation")
    state = dataclasses.replace(record.state, file="ce60.pth", optimizer="fresh")
    assert departures(dataclasses.replace(record, state=state)) == (
        "CE60: file: expected None, found ce60.pth",
        "CE60: optimizer: expected None, found fresh",
    )
