"""Support for the tests of the timm task, which run in an environment of their own: `make test-timm`."""

import models_timm.conftest as support  # declares what this environment's torchvision may miss, before timm asks for it

collect_ignore_glob = support.collect_ignore_glob
