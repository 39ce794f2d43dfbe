"""From a section of the configuration to its network."""

from tpkd.config.schema import StudentConfig, TeacherConfig
from tpkd.models.preparation import model_spec
from tpkd.models.spec import ModelSpec


def test_paths_of_a_section_are_filled_in(monkeypatch):
    monkeypatch.setenv("TPKD_DATA", "/data")
    section = TeacherConfig(
        model="hf:$TPKD_DATA/bert",
        options={"tokenizer": "$TPKD_DATA/words", "dropout": 0.1},
        weights="$TPKD_DATA/net.safetensors",
        seed=3,
    )
    options = {"tokenizer": "/data/words", "dropout": 0.1}
    assert model_spec(section, 5) == ModelSpec("hf:/data/bert", 5, options, "/data/net.safetensors", "own", 3)


def test_a_probe_starts_as_a_random_head():
    assert model_spec(StudentConfig(model="builtin:mlp", head="probe"), 5).head == "random"
