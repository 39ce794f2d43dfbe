"""The terminal says how the loss was called, counts the findings, and has the command of each failure."""

from check_loss.examination import examine
from tpkd.check_loss.terminal import loss_reading, loss_table


def test_every_finding_has_a_row_and_every_failure_its_command():
    record = examine("faulty.overwrites")
    assert loss_table(record).row_count == len(record.findings)
    called, counts, *commands = loss_reading(record)
    assert record.call in called
    assert f"{len(record.failures)} fail" in counts
    assert commands[1::2] == [failure.reproduction for failure in record.failures]
