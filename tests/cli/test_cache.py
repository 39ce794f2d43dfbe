import json
import re

import numpy as np
import pytest
import yaml

from cli.training_runs import run
from importing.files import answers, importing_config, write
from training.tiny import plain_config
from training.two_teachers import cached


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(plain_config(tmp_path) | {"initial": {"cache": str(tmp_path / "initial")}}))
    return path


@pytest.fixture
def tpkd(capsys, monkeypatch):
    return lambda *arguments: run(capsys, monkeypatch, *arguments)


def test_build_says_bytes_first_and_what_it_built_last(tpkd, config, tmp_path):
    code, out, err = tpkd("cache", "build", config)
    assert code == 0
    assert "\nbuilding 1200 rows, 0.1 MB, 0 rows written already\n" in err
    assert re.search(r"already\nabout \d+\.\d minutes at the speed of the first rows\n", err)
    assert "1200 of 1200 rows, 0.0 minutes left" in err
    assert "1200 of 1200 (150 samples × 8 views)" in out
    assert "10 classes, float16" in out
    assert "layer_2 (24)" in out
    again = tpkd("cache", "build", config)
    assert again[0] == 0
    assert "1200 rows written already" in again[2]
    assert again[1] == out


def test_build_says_first_how_often_the_teacher_is_right(tpkd, config):
    """The teacher of these runs is random, and 150 samples are enough to tell."""
    code, _, err = tpkd("cache", "build", config)
    assert code == 0
    lines = err.splitlines()
    assert re.match(
        r"The teacher is right on \d+\.\d % of 150 training samples, the student on \d+\.\d %; both", lines[0]
    )
    assert lines[1].startswith("Warning: the teacher seems to know nothing of these labels: that is not clearly more")
    assert lines[2].startswith("building 1200 rows")
    whole = next(line for line in lines[3:] if line.startswith("The teacher is right"))
    assert re.match(r"The teacher is right on \d+\.\d % of 1,200 cached rows\.$", whole)
    again = tpkd("cache", "build", config)[2].splitlines()
    assert again.count(whole) == 1
    assert not any("training samples" in line for line in again)  # a finished cache answers by itself


def test_a_build_needs_no_student(tpkd, config):
    code, _, err = tpkd("cache", "build", config, "student.weights=no.safetensors")
    assert code == 0
    assert err.startswith("The student is not compared: student: no.safetensors: cannot be read")
    code, _, err = tpkd("cache", "build", config, "student.head=probe")
    assert code == 0


def test_info_is_the_manifest_in_words_or_as_json(tpkd, config, tmp_path):
    built = tpkd("cache", "build", config)
    assert tpkd("cache", "info", tmp_path / "cache") == (0, built[1], "")
    code, out, _ = tpkd("cache", "info", tmp_path / "cache", "--json")
    found = json.loads(out)
    assert (code, found["rows"], found["complete"]) == (0, 1200, True)
    assert found["recipe"]["preprocessing"]["pad"] == 1


def test_a_truncated_cache_says_what_it_keeps_and_what_that_saves(tpkd, config, tmp_path):
    code, out, err = tpkd("cache", "build", config, "teacher.top_k=3", "teacher.layers=[]", "student.layers=[]")
    assert code == 0
    kept = "top 3 of 10 classes and the label, float16; total of the rest, float32"
    lines = [line for line in err.splitlines() if line.startswith("Each row keeps: ")]
    row, full = 17 + 3 * (2 + 1) + 2 + 4, 17 + 2 * 10
    sizes = f"{1.2 * row:.1f} kB, {100 * row / full:.1f} % of the {1.2 * full:.1f} kB of all logits in float16"
    assert lines == [f"Each row keeps: {kept}. {sizes}."]
    text = " ".join(re.sub("[│\\s]+", " ", out).split())
    assert f"kept {kept}" in text
    assert re.search(rf"size \d+\.\d kB, \d+\.\d % of the {1.2 * full:.1f} kB of all logits in float16; 1 shards", text)
    assert tpkd("cache", "info", tmp_path / "cache") == (0, out, "")
    found = json.loads(tpkd("cache", "info", tmp_path / "cache", "--json")[1])
    assert (found["recipe"]["top_k"], found["full_bytes"]) == (3, 1200 * full)


def test_verify_checks_bytes_and_with_a_configuration_values(tpkd, config, tmp_path):
    tpkd("cache", "build", config)
    code, out, _ = tpkd("cache", "verify", tmp_path / "cache")
    assert (code, out) == (0, "sound: 1200 rows in 1 shards, none computed again\n")
    code, out, _ = tpkd("cache", "verify", tmp_path / "cache", "--config", config, "--sample", 16)
    assert code == 0
    assert out.startswith("sound: 1200 rows in 1 shards, 16 computed again, largest difference ")


def test_verify_says_what_is_wrong_and_exits_1(tpkd, config, tmp_path):
    tpkd("cache", "build", config)
    shard = tmp_path / "cache" / "shard-00000.safetensors"
    data = bytearray(shard.read_bytes())
    data[-5] ^= 1
    shard.write_bytes(data)
    code, out, _ = tpkd("cache", "verify", tmp_path / "cache")
    assert code == 1
    assert f"{shard}: expected SHA-256" in out
    assert "not sound" in out


def test_verify_refuses_the_configuration_of_another_cache(tpkd, config, tmp_path):
    tpkd("cache", "build", config)
    other = tmp_path / "other.yaml"
    other.write_text(config.read_text().replace("limit: 150", "limit: 149"))
    code, _, err = tpkd("cache", "verify", tmp_path / "cache", "--config", other)
    assert code == 2
    assert "this cache was computed from something else: dataset_fingerprint" in err


def test_the_start_of_the_student_has_a_cache_of_its_own(tpkd, config, tmp_path):
    code, out, _ = tpkd("cache", "build", config, "--network", "initial")
    assert code == 0
    assert "10 classes, float32" in out
    assert tpkd("cache", "verify", tmp_path / "initial", "--config", config, "--network", "initial")[0] == 0


def test_parts_are_built_and_merged_to_the_same_cache(tpkd, config, tmp_path):
    small = ["--shard-bytes", 20_000]
    assert tpkd("cache", "build", config, *small, f"teacher.cache={tmp_path / 'one'}")[0] == 0
    for number in (1, 2, 3):
        code, out, err = tpkd("cache", "build", config, *small, "--part", f"{number}/3")
        assert code == 0
        assert re.search(rf"(\d+) of \1 \(part {number} of 3; 150 samples × 8 views in all\)", out)
        assert "cached rows" not in err
    parts = [tmp_path / f"cache.part-{number}-of-3" for number in (1, 2, 3)]
    assert tpkd("cache", "info", parts[1])[0] == 0
    assert tpkd("cache", "verify", parts[2], "--config", config, "--sample", 4)[0] == 0
    code, out, err = tpkd("cache", "merge", *parts)
    assert code == 0
    assert "1200 of 1200 (150 samples × 8 views)" in out
    assert re.search(r"shards, and an index of \d+\.\d kB", out)
    shards = len(list((tmp_path / "one").glob("shard-*")))
    assert err.endswith(f"shards: {shards} of {shards}\n")
    for path in (tmp_path / "one").iterdir():
        if path.name != ".lock":
            assert (tmp_path / "cache" / path.name).read_bytes() == path.read_bytes()
    assert tpkd("cache", "verify", tmp_path / "cache", "--config", config, "--sample", 4)[0] == 0


def test_a_plan_says_what_a_build_will_take_and_writes_nothing(tpkd, config, tmp_path, monkeypatch):
    monkeypatch.setattr("tpkd.teacher.planning.TRIAL_SECONDS", 0.05)
    code, out, err = tpkd("cache", "plan", config, "--rows", 10**8, "--workers", 8)
    assert (code, err) == (0, "")
    text = " ".join(re.sub("[│┃\\s]+", " ", out).split())
    row = 17 + 2 * 10 + 2 * 24
    assert "A cache of 100,000,000 rows" in text
    assert f"bytes per row {row} {row + 10 + 2 + 4}" in text
    assert "on disk 9.0 GB 10.6 GB" in text
    assert "largest part 12,500,000 rows 12,500,000 rows" in text
    assert re.search(
        r"Measured here: [\d,]+ rows in \d\.\d s, [\d,.]+ rows per second; minutes are for 8 workers", text
    )
    assert not (tmp_path / "cache").exists()
    found = json.loads(tpkd("cache", "plan", config, "--json")[1])
    assert [estimate["rows"] for estimate in found["estimates"]] == [1200, 1200]
    assert found["trial"]["rows"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["build", "CONFIG", "teacher=null", "student.layers=[]"], "run.yaml: teacher: missing"),
        (
            ["build", "CONFIG", "teacher.cache=null"],
            "run.yaml: teacher.cache: missing, and the cache needs a directory",
        ),
        (["build", "CONFIG", "--network", "student"], "network: expected teacher or initial, found 'student'"),
        (["build", "CONFIG", "teacher.weights=no.safetensors"], "run.yaml: teacher: no.safetensors: cannot be read"),
        (
            [
                "build",
                "CONFIG",
                "teacher.weights=null",
                "teacher.untrained=true",
                "teacher.options.input_size=10",
                "teacher.cache=DIRECTORY/new",
            ],
            "run.yaml: teacher.model: builtin:mlp does not fit the inputs of digits: inputs: expected 10 numbers",
        ),
        (["build", "CONFIG", "teacher.model=null"], "run.yaml: teacher.model: missing"),
        (["build", "CONFIG", "teacher.top_k=3", "teacher.cache=null"], "run.yaml: teacher: top_k: expected a cache"),
        (["build", "CONFIG", "teacher.top_k=-1"], "run.yaml: teacher.top_k: Input should be greater than 0, found -1"),
        (["build", "CONFIG", "--part", "0/2"], "part: expected I/N with I from 1 to N, such as 2/4, found '0/2'"),
        (["plan", "CONFIG", "teacher.model=null"], "run.yaml: teacher.model: missing"),
        (["merge", "DIRECTORY", "DIRECTORY"], "--out: missing, and the names of the parts do not say where"),
        (["merge", "DIRECTORY/x.part-1-of-1"], "x.part-1-of-1: expected a teacher cache, found no manifest.json"),
        (["info", "DIRECTORY"], "expected a teacher cache, found no manifest.json"),
        (["verify", "DIRECTORY"], "expected a teacher cache, found no manifest.json"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(tpkd, config, tmp_path, arguments, message):
    places = {"CONFIG": config, "DIRECTORY": tmp_path}
    filled = (str(places.get(argument, argument)).replace("DIRECTORY", str(tmp_path)) for argument in arguments)
    code, out, err = tpkd("cache", *filled)
    assert (code, out) == (2, "")
    assert not (tmp_path / "new").exists()
    assert err.count("\n") == 1
    assert message in err


@pytest.fixture
def imported(tmp_path):
    """A run whose teacher is a cache alone, and a file of logits for it."""
    config = importing_config(tmp_path)
    path = tmp_path / "import.yaml"
    path.write_text(yaml.safe_dump(config.model_dump(mode="json")))
    return path, write(tmp_path / "logits.npy", answers(config)[1][:, 0])


def test_import_says_how_often_the_teacher_is_right_and_what_it_wrote(tpkd, imported, tmp_path):
    config, logits = imported
    code, out, err = tpkd("cache", "import", logits, "--config", config)
    assert code == 0
    assert "building 60 rows" in err
    assert re.search(r"The teacher is right on \d+\.\d % of 60 cached rows\.\n", err)
    assert "60 of 60 (60 samples × 1 views)" in out
    assert "imported from" in out
    assert "logits.npy SHA-256" in out
    again = tpkd("cache", "import", logits, "--config", config)
    assert again[0] == 0
    assert again[1] == f"{tmp_path / 'imported'}: already imported from these files, nothing to do\n{out}"
    assert tpkd("cache", "verify", tmp_path / "imported", "--config", config)[:2] == (
        0,
        "sound: 60 rows in 1 shards, none computed again\n",
    )
    assert json.loads(tpkd("cache", "info", tmp_path / "imported", "--json")[1])["model_source"].startswith(
        "logits.npy"
    )


def test_import_by_ids_and_with_overrides(tpkd, imported, tmp_path):
    config, logits = imported
    dataset, _ = answers(importing_config(tmp_path))
    ids = tmp_path / "ids.txt"
    ids.write_text("".join(f"{sample}\n" for sample in dataset.ids))
    arguments = ("--config", config, f"teacher.cache={tmp_path / 'other'}", "--ids", ids)
    assert tpkd("cache", "import", logits, *arguments)[0] == 0
    np.save(logits, np.load(logits) + 1)
    code, out, err = tpkd("cache", "import", logits, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "holds another cache imported from logits.npy" in err


def test_build_and_verify_take_every_teacher_of_a_run(tpkd, tmp_path):
    config = tmp_path / "run.yaml"
    plain = cached(tmp_path, limit=40, views={"scale": 16}).model_dump(mode="json")
    config.write_text(yaml.safe_dump(plain))
    code, out, err = tpkd("cache", "build", config)
    assert code == 0
    assert err.count("building 40 rows") == 2
    assert "teachers.1: The teacher is right on" in err
    for name in ("first-cache", "second-cache"):
        assert name in "".join(out.split())  # a long directory is broken over lines
        code, out_of_one, _ = tpkd("cache", "verify", tmp_path / name, "--config", config)
        assert (code, "computed again" in out_of_one) == (0, True)
    code, _, err = tpkd("cache", "build", config, "teachers.1.cache=null")
    assert (code, err.count("\n")) == (2, 1)
    assert "run.yaml: teachers.1.cache: missing" in err
