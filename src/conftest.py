"""Examples run where their libraries are: timm stands in an environment of its own, see `make test-timm`."""

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("timm") else ["tpkd/integrations/timm*.py"]
