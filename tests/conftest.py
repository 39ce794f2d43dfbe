"""What every test run shares."""

from importlib.util import find_spec

# timm needs torchvision, which lives in an environment of its own: `make test-timm` runs these there.
collect_ignore = [] if find_spec("timm") else ["timm"]
