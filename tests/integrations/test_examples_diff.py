"""Five lines are enough: each host's distillation example beside the same script without a teacher."""

import difflib
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
HOSTS = [path.stem.removeprefix("distill_") for path in sorted(EXAMPLES.glob("distill_*.py"))]
MOST = 5


def changed_lines(before, after):
    """How many lines were changed, added or removed; a line rewritten counts once, a blank one not at all."""
    old, new = ([line for line in text.splitlines() if line.strip()] for text in (before, after))
    blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return sum(max(i2 - i1, j2 - j1) for kind, i1, i2, j1, j2 in blocks if kind != "equal")


def test_lines_are_counted_as_a_reader_counts_them():
    script = "a\nb\nc\nd\n"
    assert changed_lines(script, script) == 0
    assert changed_lines(script, "a\nB\nc\nd\n") == 1
    assert changed_lines(script, "a\n\nnew\nb\nc\nd\n") == 1
    assert changed_lines(script, "a\nB\nmore\nc\n") == 3


def test_every_host_has_a_pair():
    assert set(HOSTS) == {"hf", "lightning", "timm", "trl"}


@pytest.mark.parametrize("host", HOSTS)
def test_a_teacher_costs_at_most_five_lines(host):
    plain, distilled = ((EXAMPLES / f"{kind}_{host}.py").read_text() for kind in ("plain", "distill"))
    count = changed_lines(plain, distilled)
    assert "tpkd" not in plain.split('"""', 2)[2]
    assert 0 < count <= MOST, f"{host}: {count} lines"
