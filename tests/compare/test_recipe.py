"""CONTRIBUTING's recipe for a column of the comparison, followed to the letter."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tpkd

ROOT = Path(__file__).parents[2]
SECTION = (ROOT / "CONTRIBUTING.md").read_text().split("## Add a column to the comparison\n")[1].split("\n## ")[0]

SCRIPT = """
import csv, io, json, sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from safetensors.torch import save_file

from compare.cases import cell, comparison
from tpkd.compare import cells
from tpkd.compare.page import report_files
from tpkd.compare.record import ComparisonRecord, ReportRecords
from tpkd.compare.reporting import catalogue

here = Path(sys.argv[1])
generator = torch.Generator().manual_seed(0)
labels = torch.arange(40) % 4
np.save(here / "labels.npy", labels.numpy())
teacher = torch.randn(40, 4, generator=generator)
np.save(here / "teacher.npy", teacher.numpy())
finals = {}
tested = SimpleNamespace(evaluation=SimpleNamespace(test=True))
for seed in (42, 43):
    logits = torch.randn(40, 4, generator=generator)
    job = SimpleNamespace(config=tested, directory=here / f"run-{seed}", name=f"tpkd-{seed}")
    job.directory.mkdir()
    save_file({"logits": logits}, job.directory / cells.TEST_LOGITS_NAME)
    cells.train = lambda config, on_step: SimpleNamespace(class_names=None)
    cells.run_cell((job, here), None)
    (here / "students" / f"tpkd-{seed}.npy").unlink()  # the logits are large, and may go
    final = cells.read_final(here / "students" / f"tpkd-{seed}.json")
    expected = sum(row.argmax().item() == other.argmax().item() for row, other in zip(logits, teacher)) / 40
    assert final.agreement == expected
    finals[seed] = final
record = comparison([cell("tpkd", seed, 0.5, final=final) for seed, final in finals.items()])
record = ComparisonRecord.from_json(record.to_json())
mean = sum(final.agreement for final in finals.values()) / 2
assert abs(record.methods[0].final["agreement"] - mean) < 1e-12
before = replace(finals[43], agreement=None)  # a cell that ran before the column existed
mixed = comparison([cell("tpkd", 42, 0.5, final=finals[42]), cell("tpkd", 43, 0.5, final=before)])
assert mixed.methods[0].final["agreement"] is None  # rather than a mean over other seeds than those of its row
assert mixed.methods[0].final["label_loss"] is not None
files = report_files(ReportRecords(catalogue(), record))
for kind in ("csv", "md", "tex"):
    assert "agreement" in files[f"tables/final.{kind}"], kind
(row,) = csv.DictReader(io.StringIO(files["tables/final.csv"]))
assert row["agreement"] == f"{100 * mean:.1f} %"
value = record.methods[0].final["agreement"]
element = f'<data value="{value!r}" data-path="comparison.methods.0.final.agreement">{100 * mean:.1f} %</data>'
assert element in files["report.html"]

older = ComparisonRecord.from_json(Path(sys.argv[2]).read_text())
assert older.cells[0].final.agreement is None
assert "agreement" not in report_files(ReportRecords(catalogue(), older))["report.html"]
print("followed")
"""


def steps():
    """Every block of the recipe with the file that was named last before it."""
    file = None
    for name, block in re.findall(r"^\d\. `([^`]+)`|^```diff\n(.*?)^```", SECTION, re.M | re.S):
        file = name or file
        if block:
            yield file, block


def apply(source, block):
    """What a block says: its lines without `+` are found once, and stand there with the others afterwards."""
    lines = block.splitlines()
    before = "\n".join(line[1:] for line in lines if not line.startswith("+"))
    assert source.count(before) == 1, f"CONTRIBUTING.md: the file has these lines not once:\n{before}"
    return source.replace(before, "\n".join(line[1:] for line in lines))


def test_a_column_takes_three_neighbouring_files():
    files = {file for file, _ in steps()}
    assert len(files) <= 3
    assert {Path(file).parent.as_posix() for file in files} == {"src/tpkd/compare"}
    assert len(list(steps())) == SECTION.count("```") // 2


def test_the_recipe_for_a_column_gives_a_column(tmp_path):
    shutil.copytree(Path(tpkd.__file__).parent, tmp_path / "src/tpkd", ignore=shutil.ignore_patterns("__pycache__"))
    for file, block in steps():
        path = tmp_path / file
        path.write_text(apply(path.read_text(), block))
    for file, block in steps():  # after one column there is still room for another
        path = tmp_path / file
        if "import numpy" not in block:
            path.write_text(apply(path.read_text(), block.replace("agreement", "second")))
    (tmp_path / "grid").mkdir()
    record = ROOT / "results/cpu-vision/comparison.json"
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "grid"), str(record)]
    path = f"{tmp_path / 'src'}:{ROOT / 'tests'}"
    done = subprocess.run(command, env={"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert done.stdout == "followed\n", done.stderr


def test_a_block_that_does_not_fit_is_seen():
    with pytest.raises(AssertionError, match="not there"):
        apply("a\nb\n", " not there\n+new")
