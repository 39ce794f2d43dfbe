"""Every fault is found by the check that is about it, its reproduction shows it, and the mended loss passes both."""

import pytest

from check_loss.examination import examine, finding, outcome, run, shows_a_fault
from tpkd.check_loss.subject import Claims

FAULTS = (
    # of public implementations
    ("ReductionIgnored", "reduction argument", (), Claims()),
    ("arguments_swapped", "student = teacher", (), Claims()),
    ("log_targets", "finite", (), Claims()),
    ("squared_probabilities", "teacher's term", (), Claims(divergence="kl")),
    ("squared_probabilities", "number of classes", (), Claims()),
    ("log_of_softmax", "certainty in float32", (), Claims()),
    ("log_of_softmax", "certainty in float16", (), Claims()),
    ("ConstantWhenAllIgnored", "nothing valid", (), Claims()),
    ("alpha_decides", "T squared", ("alpha=0",), Claims()),
    ("MeanOverClasses", "number of classes", (), Claims()),
    ("mean_of_logs", "number of classes", (), Claims()),
    ("mean_of_float_logs", "number of classes", (), Claims()),
    # of their users' reports
    ("mask_forgotten", "ignored labels", (), Claims()),
    ("nan_when_all_ignored", "nothing valid", (), Claims()),
    ("count_forgotten", "masked accumulation", (), Claims()),
    ("no_t_squared", "T squared", (), Claims()),
    ("one_side_softened", "student = teacher", (), Claims()),
    ("product_of_means", "accumulation", (), Claims()),
    ("overwrites", "inputs", (), Claims()),
    ("scale_forgotten", "scaled loss", (), Claims()),
    ("gradient_off", "gradient", (), Claims()),
    ("first_class_counts_twice", "class names", (), Claims()),
    ("two_classes_undefined", "two classes", (), Claims()),
)
RAISING = (
    ("alpha_decides", "runs", "TypeError"),  # torchdistill's own default
    ("detached_student", "runs", "no gradient reaches the student"),
    ("needs_contiguous", "views in memory", "RuntimeError"),
)


@pytest.mark.parametrize(("loss", "check", "settings", "claims"), FAULTS, ids=lambda value: str(value)[:30])
def test_fault_is_found_and_shown_and_gone_when_mended(loss, check, settings, claims):
    faulty = finding(examine(f"faulty.{loss}", settings, claims), check)
    assert faulty.outcome == "fail"
    assert shows_a_fault(run(faulty.reproduction)), faulty.reproduction
    mended = examine(f"sound.{loss}", settings, claims)
    assert mended.failures == ()
    assert not shows_a_fault(run(faulty.reproduction.replace("check_loss.faulty", "check_loss.sound")))


@pytest.mark.parametrize(("loss", "check", "word"), RAISING)
def test_what_does_not_run_at_all(loss, check, word):
    faulty = finding(examine(f"faulty.{loss}"), check)
    assert faulty.outcome == "fail"
    assert word in faulty.finding
    with pytest.raises((TypeError, RuntimeError)):
        run(faulty.reproduction)
    run(faulty.reproduction.replace("check_loss.faulty", "check_loss.sound"))
    assert examine(f"sound.{loss}").failures == ()


def test_nothing_more_is_examined_after_a_loss_that_is_not_finite():
    assert [found.name for found in examine("faulty.log_targets").findings] == ["runs", "finite"]


def test_alpha_that_is_not_zero_keeps_t_squared():
    """torchdistill's fault is that of one setting: with another the same loss passes."""
    assert examine("faulty.alpha_decides", ("alpha=0.5",)).failures == ()


@pytest.mark.parametrize(
    ("loss", "claims", "check"),
    [
        ("summed", Claims(reduction="mean"), "reduction"),
        ("textbook", Claims(reduction="sum"), "reduction"),
        ("textbook", Claims(reduction="none"), "reduction"),
        ("textbook", Claims(divergence="reverse-kl"), "teacher's term"),
        ("textbook", Claims(ignore_index=-100), "ignored labels"),
        ("textbook", Claims(dense=True), "dense shapes"),
    ],
    ids=str,
)
def test_a_choice_that_contradicts_a_claim_is_a_failure(loss, claims, check):
    assert outcome(examine(f"sound.{loss}"), check) != "fail"
    failure = finding(examine(f"sound.{loss}", (), claims), check)
    assert failure.outcome == "fail"
    assert shows_a_fault(run(failure.reproduction)), failure.reproduction


@pytest.mark.parametrize(
    ("loss", "claims"),
    [
        ("faulty.MeanOverClasses", Claims(reduction="elements")),
        ("faulty.no_t_squared", Claims(t_squared=False)),
        ("faulty.gradient_off", Claims(prescribed=True)),
        ("sound.relational", Claims(batchwise=True)),
    ],
    ids=str,
)
def test_what_is_meant_can_be_said(loss, claims):
    assert examine(loss).failures
    assert examine(loss, (), claims).failures == ()
