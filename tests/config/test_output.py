"""The path that an output means."""

import itertools

import pytest

from tpkd.config.loading import load_config
from tpkd.config.output import literal_output


@pytest.mark.parametrize("name", ["".join(parts) for parts in itertools.product(("", "{", "{{", "}"), ("a", "{seed}"))])
def test_braces_can_be_said(file, name):
    assert load_config(file, [("output", literal_output(name))]).directory == name
