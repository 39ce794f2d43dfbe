"""Support for the tests of the timm task, which run in an environment of their own: `make test-timm`."""

import importlib.util

import models_timm.conftest  # noqa: F401 (declares what this environment's torchvision may miss, before timm asks)

# In the environment of `make test` there is no timm, on purpose; there these files do not count as tests.
collect_ignore_glob = [] if importlib.util.find_spec("timm") else ["*.py"]
