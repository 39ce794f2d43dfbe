"""What is known of a teacher's competence reads back from JSON, with and without a student."""

from dataclasses import asdict, dataclass, replace

import pytest

from tpkd.competence.record import Competence
from tpkd.record import Record

ALONE = Competence(8, 0.25, 0.5, near_chance=True, too_few=False, student_accuracy=None, agreement=None)


@dataclass(frozen=True)
class Holder(Record):
    competence: Competence


@pytest.mark.parametrize("competence", [ALONE, replace(ALONE, student_accuracy=0.125, agreement=1.0)])
def test_it_reads_back(competence):
    assert Holder.from_json(Holder(competence).to_json()).competence == competence


@pytest.mark.parametrize("field", ["chance", "near_chance", "student_accuracy"])
def test_no_field_may_be_missing(field):
    plain = asdict(ALONE)
    del plain[field]
    with pytest.raises(ValueError, match=rf"missing \['{field}'\]"):
        Holder.from_dict({"schema": 1, "competence": plain})
