"""Methods of other packages: an entry point is enough, a broken one is named and left out, a taken name is refused."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import tpkd
from tpkd.objectives import KD, Objective, RowObjective, names, register, registry

ROOT = Path(__file__).resolve().parents[2]
METHOD = re.search(r"```python\n(.*?)```", (ROOT / "docs/extending.md").read_text(), re.S)[1]
ENTRY = re.search(r'^logit-matching = "(.*)"$', (ROOT / "docs/extending.md").read_text(), re.M)[1]


@pytest.fixture
def registered(monkeypatch):
    """Whatever a test registers is forgotten after it."""
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))


def install(directory, modules, entries):
    """Packages as pip leaves them: modules, and the metadata that names the entry points."""
    metadata = directory / "plugins-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: plugins\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in entries.items()]
    (metadata / "entry_points.txt").write_text("\n".join(["[tpkd.objectives]", *lines, ""]))
    for name, text in modules.items():
        (directory / f"{name}.py").write_text(text)


def run(directory, *command):
    path = f"{Path(tpkd.__file__).parents[1]}:{directory}"
    environment = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "300"}
    return subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True)


def test_an_installed_method_is_known_by_name_and_listed(tmp_path):
    install(tmp_path, {"logit_matching": METHOD}, {"logit-matching": ENTRY})
    code = "import sys; from tpkd.objectives import create, names; create('kd')"
    code += "; assert 'logit_matching' not in sys.modules"
    code += "; print(create('logit-matching', match_weight=2.0), names()[-1], len(names()))"
    assert run(tmp_path, "-c", code).stdout == f"LogitMatching(match_weight=2.0) logit-matching {len(names()) + 1}\n"
    done = run(tmp_path, "-m", "tpkd", "methods")
    assert "mean squared distance to the teacher's logits" in done.stdout
    assert "teacher_logits" in done.stdout
    assert done.stderr == ""


def test_a_broken_or_colliding_package_is_named_in_one_line_and_nothing_else_breaks(tmp_path):
    taken = METHOD.replace('name = "logit-matching"', 'name = "kd"')
    modules = {"logit_matching": METHOD, "broken": "import nothing_of_this_name", "taken": taken}
    entries = {"bad": "broken", "also-kd": "taken:LogitMatching", "logit-matching": ENTRY}
    install(tmp_path, modules, entries)
    code = "from tpkd.objectives import create, names; print(names()[-1], len(names()), type(create('kd')).__module__)"
    done = run(tmp_path, "-W", "always", "-c", code)
    assert done.stdout == f"logit-matching {len(names()) + 1} tpkd.objectives.kd\n"
    assert done.stderr.count("is left out") == 2
    assert "objective 'bad' (broken) is left out: ModuleNotFoundError: No module named 'nothing_of_this" in done.stderr
    assert "objective 'also-kd' (taken:LogitMatching) is left out: ValueError: name: 'kd' is taken by" in done.stderr


def make(**attributes):
    words = {"name": "mine", "title": "Mine", "summary": "mine", "source": "here"}
    body = words | {"row_losses": lambda self, student, teacher, labels: student.sum(-1)} | attributes
    return type("Mine", (RowObjective,), {name: value for name, value in body.items() if value is not None})


def test_a_class_becomes_an_objective_with_settings(registered):
    mine = register(make(__annotations__={"power": float}, power=2.0))
    assert names()[-1] == "mine"
    assert mine(power=3.0).power == 3.0
    assert register(make(title="Again")) is not mine  # a cell of a notebook that is run again


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"name": "My method"}, "name: expected lower-case words joined by '-', found 'My method'"),
        ({"name": "kd"}, r"name: 'kd' is taken by tpkd\.objectives\.kd\.KD"),
        (
            {"title": None, "source": None},
            "expected class attributes name, title, summary, source, found no title, source",
        ),
        ({"row_losses": None}, "Mine: expected methods row_losses, found none"),
        ({"__annotations__": {"power": float}}, "expected a default of every setting, found none of power"),
        ({"needs": {"teacher"}}, "needs: expected some of .*teacher_logits.*, found teacher"),
        ({"__annotations__": {"temperature": float}, "temperature": 0.0}, "temperature: expected a positive"),
    ],
)
def test_what_is_not_an_objective_is_refused_in_one_line(registered, attributes, message):
    with pytest.raises(ValueError, match=message) as error:
        register(make(**attributes))
    assert "\n" not in str(error.value)
    assert "mine" not in names()


def test_objectives_that_are_not_of_rows_register_too(registered):
    class Whole(KD):
        name = "whole"

    assert issubclass(register(Whole), Objective)
    assert "whole" in names()
