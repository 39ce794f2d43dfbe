"""Promises about the shape of the package: who imports whom, what is public, what an import loads."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import tpkd

SOURCE = Path(tpkd.__file__).parent

BASE = {"errors", "files", "record", "lock", "arrays", "class_names", "termination", "remote_files", "hub"}
"""What everything may use."""
MATHS = BASE | {"geometry", "theory", "parameter_space", "objectives"}
RUN = BASE | {"config", "data", "models", "teacher"}
TOOLKIT = {"report", "competence"}
SUBJECTS = {"diagnosis", "quality", "compare", "mechanism", "check_loss", "figures", "demo", "importing"}
SUBJECTS |= {"audit", "tokens", "watch"}
ALLOWED = {
    "errors": set(),
    "record": set(),
    "termination": set(),
    "hub": set(),
    "files": {"errors"},
    "lock": {"errors", "files"},
    "remote_files": {"errors", "files"},
    "class_names": {"errors", "files"},
    "arrays": {"errors", "files", "class_names"},
    "geometry": BASE,
    "theory": BASE | {"geometry"},
    "parameter_space": BASE | {"geometry"},
    "objectives": BASE | {"geometry"},
    "config": BASE,
    "executors": BASE,
    "data": BASE | {"config"},
    "models": BASE | {"config", "data"},
    "teacher": BASE | {"geometry", "config", "data", "models", "competence", "executors"},
    "training": (MATHS | RUN) - {"parameter_space"},
    "student": RUN | {"training"},
    "report": set(),
    "competence": {"report"},
    "diagnosis": BASE | TOOLKIT | {"geometry", "theory", "teacher"},
    "quality": BASE,
    "mechanism": MATHS | RUN | {"training", "report"},
    "compare": MATHS | RUN | TOOLKIT | {"training", "diagnosis", "quality", "mechanism", "figures", "executors"},
    "audit": MATHS | RUN | TOOLKIT | {"training", "diagnosis", "quality", "compare"},
    "importing": RUN | {"geometry", "theory", "diagnosis", "tokens"},
    "check_loss": BASE | {"geometry", "report"},
    "figures": BASE | {"geometry", "theory", "report"},
    "watch": BASE | {"training", "executors", "report"},
    "demo": RUN | {"training", "audit", "compare", "diagnosis", "mechanism", "figures", "executors"},
    "tokens": MATHS | RUN | {"training", "report"},
    "integrations": BASE | {"geometry", "objectives", "theory", "teacher", "training"},
    "cli": MATHS | RUN | TOOLKIT | SUBJECTS | {"training", "student", "executors"},
    "__init__": {"geometry", "theory", "parameter_space", "objectives", "student", "errors"},
    "__main__": {"cli"},
}
RECORDS_ONLY = ("record", "tables", "charts", "reading", "page", "terminal")
"""Files of a subject that show what was found, and import nothing that computes."""
MODULES = sorted(SOURCE.rglob("*.py"))
TESTS = Path(__file__).parent
ELSEWHERE = {
    "models/vision": "models_timm",
    "student/to_timm": "models_timm",
    "integrations/timm": "integrations_timm",
    "integrations/vocabulary": "integrations/transformers",
    "integrations/transformers_": "integrations/transformers",
}
"""Modules whose tests need an environment of their own, because timm is not in that of the others, or one host."""
HOSTS = ("lightning", "timm", "transformers", "trl")
"""Integrations whose tests fill a folder of their own."""


def part_of(path):
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def imported_parts(path):
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [f"{node.module}.{alias.name}" if node.module == "tpkd" else node.module for alias in node.names]
        yield from (name.split(".")[1] for name in names if name.startswith("tpkd."))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_one_way(path):
    part = part_of(path)
    extra = set(imported_parts(path)) - ALLOWED[part] - {part}
    assert not extra, f"{part} may not import {extra}"


@pytest.mark.parametrize(
    "module",
    [".".join(path.relative_to(SOURCE.parent).with_suffix("").parts) for path in MODULES if path.stem in RECORDS_ONLY],
)
def test_what_shows_records_imports_no_torch(module):
    if module.split(".")[1] not in SUBJECTS | {"competence"}:
        pytest.skip("not a subject's folder")
    code = f"import sys; sys.modules['tpkd'] = type(sys)('tpkd'); sys.modules['tpkd'].__path__ = [{str(SOURCE)!r}]"
    code += f"; import {module}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def folders_of_tests(path):
    """Where the tests of a module may be: beside those of its folder, or in a folder of its own."""
    module = path.relative_to(SOURCE).with_suffix("")
    name = str(module)
    return [
        TESTS / module.parent,
        TESTS / module,
        *(TESTS / ELSEWHERE[key] for key in ELSEWHERE if name.startswith(key)),
    ]


def has_tests(path):
    part, name = part_of(path), path.stem
    if part == "integrations" and name.startswith(HOSTS):
        return any(any(folder.glob("test_*.py")) for folder in folders_of_tests(path)[1:])
    return any((folder / f"test_{name}.py").is_file() for folder in folders_of_tests(path))


def test_a_module_has_a_test_file_of_its_name():
    modules = [path for path in MODULES if not path.stem.startswith("__")]
    assert not [str(path.relative_to(SOURCE)) for path in modules if not has_tests(path)]


def test_no_package_has_the_name_of_a_public_function():
    assert not {path.parent.name for path in SOURCE.glob("*/__init__.py")} & set(tpkd.__all__)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_and_functions_stay_small(path):
    source = path.read_text()
    assert len(source.splitlines()) <= 400
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            docstring = len((ast.get_docstring(node) or "").splitlines())
            assert node.end_lineno - node.lineno - docstring <= 60, node.name


@pytest.mark.parametrize("name", ["tpkd", "tpkd.geometry", "tpkd.theory", "tpkd.parameter_space", "tpkd.objectives"])
def test_public_names_are_listed_by_hand_sorted_and_exist(name):
    module = importlib.import_module(name)
    assert len(set(module.__all__)) == len(module.__all__)
    assert module.__all__ == sorted(module.__all__, key=lambda public: (not public.isupper(), public))
    for public in module.__all__:
        assert getattr(module, public) is not None
    visible = {key for key, value in vars(module).items() if not key.startswith("_") and callable(value)}
    assert visible <= set(module.__all__)


@pytest.mark.parametrize("name", ["tpkd.geometry", "tpkd.theory", "tpkd.parameter_space", "tpkd.objectives"])
def test_every_public_function_has_a_docstring_with_an_example(name):
    module = importlib.import_module(name)
    for public in module.__all__:
        value = getattr(module, public)
        if callable(value):
            assert value.__doc__, public
            if not isinstance(value, type):
                assert ">>>" in value.__doc__, f"{name}.{public} has no example"


def test_import_loads_torch_numpy_and_jaxtyping_alone():
    code = """
import sys, importlib.metadata as metadata
import torch, numpy, jaxtyping
before = set(sys.modules)
import tpkd
new = {name.split(".")[0] for name in set(sys.modules) - before}
third_party = {m for m in new if m in metadata.packages_distributions()} - {"tpkd"}
assert not third_party, third_party
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_top_level_names_are_the_contract():
    assert set(tpkd.__all__) == {
        *("TPKDLoss", "dkd_loss", "kd_loss", "kl_dist_loss", "linear_tpkd_loss", "tpkd_loss", "xe_kl_loss"),
        *("TopK", "complete_top_k", "linear_top_k_tpkd_loss", "top_k_kd_loss", "top_k_tpkd_loss"),
        *("directions", "margins", "named_direction", "project_safe_cone"),
        *("diagnose", "frontier", "is_blocked", "log_transfer_path", "min_confidence", "min_log_odds", "transfer_cost"),
        *("alignment_bound", "conditional_distortion_limit", "joint_distortion_limit", "retention_bound"),
        *("certify", "exact_head_update"),
        *("load_student",),
    }
