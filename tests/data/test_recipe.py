"""The recipe of CONTRIBUTING.md for a data set kind, followed to the letter in a copy of the package."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

import tpkd

ROOT = Path(__file__).resolve().parents[2]
STEP = re.compile(r"^\d+\. `([^`]+)`|^```(\w+)\n(.*?)^```$", re.M | re.S)


def follow(section, root):
    """Write the blocks of a section into a copy: `python` is a whole file, `diff` a change of one that exists."""
    files, path = [], None
    for named, language, text in STEP.findall(section):
        if named:
            path = root / named
            files.append(named)
        elif language == "python":
            assert not path.exists()
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        else:
            assert language == "diff"
            lines = text.splitlines(keepends=True)
            before = "".join(line[1:] for line in lines if line.startswith(" "))
            content = path.read_text()
            assert content.count(before) == 1, f"CONTRIBUTING.md: {path.name} has these lines not once:\n{before}"
            path.write_text(content.replace(before, "".join(line[1:] for line in lines)))
    return files


def test_the_recipe_adds_a_kind_that_trains(tmp_path):
    section = (ROOT / "CONTRIBUTING.md").read_text().split("\n## Add a data set kind\n")[1].split("\n## ")[0]
    shutil.copytree(Path(tpkd.__file__).parent, tmp_path / "src/tpkd", ignore=shutil.ignore_patterns("__pycache__"))
    files = follow(section, tmp_path)
    assert len(files) == 3
    follow(section.replace("fasttext", "fasttexu"), tmp_path)  # after one kind there is still room for another

    def run(*command):
        environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src")}
        done = subprocess.run([sys.executable, "-m", *command], cwd=tmp_path, env=environment, capture_output=True)
        assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()

    run("pytest", "-q", "-p", "no:cacheprovider", files[-1])
    for split in ("train", "test"):
        pairs = [("a", "one"), ("b", "two"), ("c", "six")]
        lines = [f"__label__{label} {text} {n}" for n in range(6) for label, text in pairs]
        (tmp_path / f"{split}.fasttext").write_text("\n".join(lines))
    config = {
        "output": "run",
        "data": {"name": "fasttext:."},
        "student": {
            "model": "builtin:bert",
            "options": {"layers": 1, "hidden_size": 8, "heads": 1, "vocab_size": 50, "pooling": "mean"},
        },
        "text": {"max_length": 8},
        "objective": "ce",
        "optimizer": {"name": "sgd", "learning_rate": 0.1},
        "epochs": 1,
        "tensorboard": False,
        "device": "cpu",
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config))
    run("tpkd", "train", "run.yaml")
    assert (tmp_path / "run/student.safetensors").exists()
