import re

import pytest

from tpkd.errors import InputError
from tpkd.models.options import BertOptions, HFOptions, MLPOptions, ResNetOptions, TimmOptions, read_options


@pytest.mark.parametrize("kind", [BertOptions, HFOptions, MLPOptions, ResNetOptions, TimmOptions])
def test_no_options_are_the_defaults(kind):
    assert read_options(kind, None) == read_options(kind, {}) == kind()


def test_plain_data_become_options():
    assert read_options(MLPOptions, {"hidden": [3, 2], "dropout": 0}) == MLPOptions(hidden=(3, 2), dropout=0)
    assert read_options(HFOptions, {"dropout": None}) == HFOptions()


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (MLPOptions, {"width": 3}, "width: unknown option, expected input_size, hidden, dropout"),
        (ResNetOptions, {"width": 3}, "width: unknown option, expected no option"),
        (MLPOptions, {"input_size": "64"}, "input_size: expected int, found '64'"),
        (MLPOptions, {"input_size": 64.0}, "input_size: expected int, found 64.0"),
        (MLPOptions, {"input_size": True}, "input_size: expected int, found True"),
        (MLPOptions, {"input_size": 0}, "input_size: expected 1 to 16777216, found 0"),
        (MLPOptions, {"hidden": 3}, "hidden: expected tuple[int, ...], found 3"),
        (MLPOptions, {"hidden": [3, "4"]}, "hidden: expected tuple[int, ...], found [3, '4']"),
        (MLPOptions, {"hidden": [3, -1]}, "hidden: expected 1 to 16777216, found -1"),
        (MLPOptions, {"dropout": 1.0}, "dropout: expected a rate in [0, 1), found 1.0"),
        (MLPOptions, {"dropout": float("nan")}, "dropout: expected a rate in [0, 1), found nan"),
        (BertOptions, {"heads": 3}, "heads: expected a divisor of hidden_size 256, found 3"),
        (BertOptions, {"intermediate_size": 0}, "intermediate_size: expected 1 to 16777216, found 0"),
        (BertOptions, {"pooling": "cls"}, "pooling: expected one of pooler, mean, found 'cls'"),
        (HFOptions, {"pooling": None}, "pooling: expected str, found None"),
        (HFOptions, {"dropout": -0.1}, "dropout: expected a rate in [0, 1), found -0.1"),
        (
            HFOptions,
            {"trust_remote_code": True},
            "trust_remote_code: unknown option, expected pooling, dropout, tokenizer",
        ),
        (TimmOptions, {"pretrained": 1}, "pretrained: expected bool, found 1"),
    ],
)
def test_what_does_not_fit_is_refused_by_key(kind, options, message):
    with pytest.raises(InputError, match=re.escape(message)):
        read_options(kind, options)
