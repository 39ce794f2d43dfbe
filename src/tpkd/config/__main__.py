"""`python -m tpkd.config > configs/schema.json` writes the schema of the configuration for editors."""

import json
import sys

from tpkd.config.loading import json_schema

sys.stdout.write(json.dumps(json_schema(), indent=1) + "\n")
