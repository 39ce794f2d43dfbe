"""Records of the losses in `faulty` and `sound`, each made once, and what a reproduction prints."""

import contextlib
import functools
import io
import math
import shlex

from tpkd.check_loss.examination import check_loss
from tpkd.check_loss.record import LossCheckRecord
from tpkd.check_loss.subject import Claims
from tpkd.check_loss.target import find_loss

REQUIRED = {"log_of_softmax": ("alpha=1.0", "beta=1.0")}
"""Settings without a default."""


@functools.cache
def examine(loss: str, settings: tuple[str, ...] = (), claims: Claims = Claims()) -> LossCheckRecord:  # noqa: B008
    """The record of `module.loss` here; `claims` are frozen, so they can be a default and a key."""
    settings += REQUIRED.get(loss.partition(".")[2], ())
    return check_loss(find_loss(f"check_loss.{loss.replace('.', ':')}", settings=settings), claims)


def finding(record: LossCheckRecord, name: str):
    (found,) = (finding for finding in record.findings if finding.name == name)
    return found


def outcome(record: LossCheckRecord, name: str) -> str:
    return finding(record, name).outcome


def run(reproduction: str) -> str:
    """The output of a reproduction, in this process: tests of the command line run some in their own."""
    python, dash_c, code = shlex.split(reproduction)
    assert (python, dash_c) == ("python", "-c")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    return printed.getvalue()


def shows_a_fault(printed: str) -> bool:
    """Whether what was found is not what was expected."""
    found, expected = printed.removeprefix("found ").strip().split(" expected ")
    if expected == "finite numbers":
        return not all(math.isfinite(float(number)) for number in found.split())
    if expected == "at least 0":
        return float(found) < 0
    if expected.startswith(("[", "True")):
        return found != expected
    pairs = zip(found.split(), expected.split(), strict=True)
    return not all(math.isclose(float(a), float(b), rel_tol=1e-3, abs_tol=1e-6) for a, b in pairs)
