"""Every key is described, and its default is the documented one."""

import json

from tpkd.config.loading import load_config
from tpkd.config.schema import RunConfig


def test_defaults_and_placeholders(file):
    config = load_config(file, ["seed=43"])
    assert (config.batch_size, config.precision, config.tf32, config.optimizer.momentum) == (64, "fp32", False, 0.9)
    assert config.directory == "runs/ce-43"


def test_the_schema_is_json_and_describes_every_key():
    schema = json.loads(json.dumps(RunConfig.model_json_schema()))
    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) == set(RunConfig.model_fields)
    assert schema["properties"]["precision"]["enum"] == ["fp32", "fp16", "bf16"]
    sections = schema["$defs"].values()
    assert all(section["additionalProperties"] is False and section["description"] for section in sections)
