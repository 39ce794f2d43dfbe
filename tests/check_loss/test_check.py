"""A check says what the loss lacks, passes on what its function found, and turns a refusal into a failure."""

import pytest

from tpkd.check_loss.check import NEEDS, check, noted, passed
from tpkd.check_loss.subject import Claims, RefusedError, Subject
from tpkd.check_loss.target import find_loss


@pytest.fixture(scope="module")
def subject():
    return Subject(find_loss("torch.nn.functional:cross_entropy", arguments=["labels=target"]), Claims(batchwise=True))


@pytest.mark.parametrize("need", ["teacher", "temperature", "samples"])
def test_a_need_that_is_not_met_is_the_finding(subject, need):
    found = check("name", "labels", need)(lambda subject: passed("looked"))(subject)
    assert (found.name, found.outcome, found.finding) == ("name", "n/a", NEEDS[need][1])


def test_needs_that_are_met_let_the_function_look(subject):
    found = check("name", "labels", "mask", "derivative")(lambda subject: noted("looked"))(subject)
    assert (found.outcome, found.finding, found.reproduction) == ("note", "looked", None)


def test_a_refusal_is_a_failure_under_the_name_of_the_check(subject):
    @check("the name")
    def examine(subject):
        raise RefusedError("no")

    found = examine(subject)
    assert (found.name, found.outcome) == ("the name", "fail")
    assert found.finding == "raises where it should answer: no"
    assert "cross_entropy(input=s, target=y)" in found.reproduction
