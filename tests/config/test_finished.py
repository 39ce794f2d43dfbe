"""The section `finished` says what stays on disk, and neither its absence nor its presence is another run."""

import pytest

from tpkd.config.finished import FinishedConfig
from tpkd.config.loading import resolve_config
from tpkd.errors import InputError
from training.tiny import plain_config


def test_by_default_a_run_keeps_everything():
    assert FinishedConfig() == FinishedConfig(weights="fp32", checkpoints=None, snapshots="state")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("finished.weights=fp8", r"finished\.weights: expected one of fp32, fp16, bf16, found 'fp8'; did you mean"),
        ("finished.snapshots=none", r"finished\.snapshots: expected one of state, weights"),
        ("finished.checkpoint=false", "finished.checkpoint: unknown key.*did you mean checkpoints"),
        ("finished.checkpoints=3", r"finished\.checkpoints"),
    ],
)
def test_wrong_values_are_refused_by_their_key(tmp_path, override, message):
    with pytest.raises(InputError, match=message):
        resolve_config(plain_config(tmp_path), [override])
