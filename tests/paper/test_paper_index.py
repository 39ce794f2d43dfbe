import pytest
from tools import paper_index as paper

INDEX = paper.index()


@pytest.mark.parametrize("label", INDEX)
def test_every_label_has_one_function_and_a_test(label):
    entry = INDEX[label]
    if entry.later:
        assert not entry.functions, f"{label} has its function now: take 'later' off it in labels.txt"
        return
    assert len(entry.functions) == 1, f"{label} is claimed by {entry.functions or 'no function'}"
    assert entry.tests, f"no test names {label}"


def test_no_docstring_claims_a_label_that_the_paper_does_not_have():
    assert paper.unknown_claims() == set()


def test_the_written_index_is_current():
    assert (paper.ROOT / "PAPER.md").read_text() == paper.render(), "run `make paper`"
