"""`python -m tpkd.config > configs/schema.json` writes the schema of the configuration for editors."""

import json
import sys

from tpkd.config.schema import RunConfig

sys.stdout.write(json.dumps(RunConfig.model_json_schema(), indent=1) + "\n")
