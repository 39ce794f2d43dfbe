"""The lead at which a loss stops being finite is found, and it is the first."""

import pytest
import torch

from check_loss.examination import examine, finding, run, shows_a_fault
from tpkd.check_loss.extremes import Extreme
from tpkd.check_loss.subject import Subject
from tpkd.check_loss.target import find_loss


@pytest.mark.parametrize(
    ("dtype", "temperature", "lead"), [(torch.float32, 1.0, 94), (torch.float16, 1.0, 16), (torch.float16, 4.0, 52)]
)
def test_the_lead_at_which_a_log_of_softmax_stops_being_finite(dtype, temperature, lead):
    """With 100 classes and an undecided teacher: the leads of mdistiller's DKD for a student certain of the label."""
    settings = ("alpha=1.0", "beta=1.0", f"temperature={temperature}")
    subject = Subject(find_loss("check_loss.faulty:log_of_softmax", settings=settings))
    finite = [subject.evaluate(Extreme({0: 1}, {}, at).scene(dtype)).finite for at in (lead - 1, lead)]
    assert finite == [True, False]


def test_the_reported_lead_is_the_first_that_fails():
    """One less, and the same command shows numbers."""
    failure = finding(examine("faulty.log_of_softmax"), "certainty in float32")
    lead = int(failure.finding.split("a lead of ")[1].split()[0])
    assert f"={lead}" in failure.reproduction
    assert not shows_a_fault(run(failure.reproduction.replace(f"{lead};", f"{lead - 1};")))
