"""The smallest configuration of a run, and what a refusal of one looks like."""

import pytest

from tpkd.config.loading import load_config
from tpkd.errors import InputError

MINIMAL = """
output: runs/{objective}-{seed}
data: {name: digits}
student: {model: 'builtin:mlp'}
objective: ce
optimizer: {name: sgd, learning_rate: 0.1}
epochs: 5
"""


def refused(path, overrides=()):
    """The one printable line with which a configuration is refused."""
    with pytest.raises(InputError) as caught:
        load_config(path, overrides)
    message = str(caught.value)
    assert message.isprintable()
    return message
