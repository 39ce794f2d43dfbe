import pytest
from tools import paper_index as paper

LABELS, CLAIMS, MENTIONS = paper.read_labels(), paper.claims(), paper.mentions()


@pytest.mark.parametrize("label", LABELS)
def test_every_label_has_one_function_and_a_test(label):
    assert len(CLAIMS[label]) == 1, f"{label} is claimed by {CLAIMS[label] or 'no function'}"
    assert MENTIONS[label], f"no test names {label}"


def test_no_docstring_claims_a_label_that_the_paper_does_not_have():
    assert set(CLAIMS) <= set(LABELS)


def test_the_written_index_is_current():
    assert (paper.ROOT / "PAPER.md").read_text() == paper.render(), "run `make paper`"
