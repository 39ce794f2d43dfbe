"""`tpkd cache`, `train` and `diagnose --tokens` with a language model made on the spot."""

import json
import sys

import pytest
from typer.testing import CliRunner

from tokens.tiny import TITLE, fill, write_model
from tpkd.cli.main import app
from tpkd.errors import InputError
from tpkd.geometry.constants import PAPER_BETA

RUNNER = CliRunner()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = fill(tmp_path_factory.mktemp("tokens"))
    part = {"path": str(folder / "text.txt"), "begin": TITLE}
    config = {
        "documents": part,
        "packing": {"length": 16},
        "teacher": {"model": f"hf:{folder / 'model'}", "cache": str(folder / "cache"), "top_k": 8},
        "evaluation": {"documents": part, "cache": str(folder / "held"), "tokens": 60},
        "output": str(folder / "run"),
        "student": {"layers": [0, 2]},
        "objective": "tpkd",
        "steps": 3,
    }
    (folder / "run.yaml").write_text(json.dumps(config))
    for network in ("teacher", "held-out"):
        run("cache", "build", folder / "run.yaml", "--network", network)
    return folder


def run(*arguments, code=0):
    result = RUNNER.invoke(app, [str(argument) for argument in arguments])
    if isinstance(result.exception, InputError):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


def test_a_cache_is_verified_and_shown(root):
    assert "sound" in run("cache", "verify", root / "cache", "--config", root / "run.yaml")
    assert json.loads(run("cache", "info", root / "cache", "--json"))["recipe"]["positions"] == 15


def test_a_student_is_trained_and_diagnosed(root, tmp_path):
    assert "perplexity" in run("train", root / "run.yaml")
    html, numbers = tmp_path / "page.html", tmp_path / "numbers.json"
    options = ("--teacher", root / "cache", "--tokens", "--blocks", 5, "--html", html, "--json", numbers)
    output = run("diagnose", root / "run" / "student", *options)
    assert "at most" in output
    assert json.loads(numbers.read_text())["all"]["tokens"] == 5 * 15
    assert "<mark>" in html.read_text()


def test_a_student_of_another_tokeniser_is_refused(root, tmp_path):
    other = write_model(tmp_path / "other", vocabulary=290)
    with pytest.raises(InputError, match=r"tokenizer: expected that of the student"):
        run("diagnose", other, "--teacher", root / "cache", "--tokens")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--tokens", "--labels", "y.npy"), r"--labels: expected none beside --tokens"),
        (
            ("--tokens", "--beta", "10"),
            r"--beta: expected none beside --tokens, whose numbers do not depend on the step",
        ),
        (("--tokens", "--temperature", "2"), r"--temperature: expected none beside --tokens"),
        (
            ("--tokens", "--probabilities"),
            r"--probabilities: expected none beside --tokens, whose student is a network",
        ),
        (("--tokens", "--log-probabilities"), r"--log-probabilities: expected none beside --tokens"),
        (("--tokens", "--label-column", "y"), r"--label-column: expected none beside --tokens, whose labels are"),
        (("--tokens", "b"), r"--tokens: expected one student, found 2"),
        (("--labels", "y.npy", "--blocks", "3"), r"--blocks: expected --tokens beside it"),
        ((), r"--labels: missing"),
    ],
)
def test_options_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        run("diagnose", "a", "--teacher", "cache", *arguments)


def test_an_option_with_its_default_value_is_refused_too():
    with pytest.raises(InputError, match=r"--beta: expected none beside --tokens"):
        run("diagnose", "a", "--teacher", "cache", "--tokens", "--beta", PAPER_BETA)


@pytest.mark.parametrize("module", ["jinja2", "matplotlib"])
def test_a_page_needs_the_extra_report_before_any_work(monkeypatch, tmp_path, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=r"tpkd\[report\]"):
        run("diagnose", "a", "--teacher", "cache", "--tokens", "--html", tmp_path / "page.html")


def test_a_student_with_fewer_logits_than_the_cache_is_refused_by_its_size(root, tmp_path):
    config = json.loads((root / "run.yaml").read_text())
    teacher = {"model": f"hf:{write_model(tmp_path / 'padded', padding=4)}", "cache": str(tmp_path / "cache")}
    (tmp_path / "run.yaml").write_text(json.dumps(config | {"teacher": config["teacher"] | teacher}))
    run("cache", "build", tmp_path / "run.yaml")
    with pytest.raises(InputError, match=r"expected at most the 300 classes of the student, found 304"):
        run("diagnose", root / "model", "--teacher", tmp_path / "cache", "--tokens")
    run("diagnose", tmp_path / "padded", "--teacher", root / "cache", "--tokens", "--blocks", 1)


def test_only_the_teacher_and_held_out_text_have_caches(root):
    with pytest.raises(
        InputError, match=r"--network: expected teacher or held-out for a language model, found 'initial'"
    ):
        run("cache", "build", root / "run.yaml", "--network", "initial")


@pytest.mark.parametrize("arguments", [("build", "--on", "local"), ("plan",)])
def test_what_a_language_model_does_not_have_yet_is_refused(root, arguments):
    verb, *options = arguments
    with pytest.raises(InputError, match=r"language model"):
        run("cache", verb, root / "run.yaml", *options)
