"""The sections `views` and `text`: what mixes, and which sizes are refused."""

import pytest

from config.minimal import refused
from tpkd.config.inputs import TextConfig, ViewsConfig
from tpkd.config.loading import load_config


def test_by_default_an_image_has_one_view_and_a_text_its_fixed_length(file):
    config = load_config(file)
    assert (config.views, config.text) == (ViewsConfig(), TextConfig())
    assert (config.views.num_views, config.text.max_length, config.text.padding) == (1, 128, "max_length")


@pytest.mark.parametrize(("views", "mixes"), [({}, False), ({"mixup": 0.2}, True), ({"cutmix": 1.0}, True)])
def test_either_kind_of_mixing_mixes(views, mixes):
    assert ViewsConfig(**views).mixes is mixes


@pytest.mark.parametrize(
    "override", ["views.num_views=0", "views.mixup=-1", "views.interpolation=cubic", "text.max_length=2", "text.pad=1"]
)
def test_wrong_values_are_refused_by_their_key(file, override):
    assert override.partition("=")[0] in refused(file, [override])
