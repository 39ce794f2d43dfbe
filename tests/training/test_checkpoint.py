import hashlib
import os

import pytest
import torch

from tpkd.errors import InputError
from tpkd.training.checkpoint import Checkpoints
from training.tampering import change_state, write_state


@pytest.fixture
def checkpoints(tmp_path):
    return Checkpoints(tmp_path / "checkpoints", keep=2)


def groups(value):
    return {
        "model": {"weight": torch.full((3,), float(value)), "count": torch.tensor(value)},
        "random": {"0.torch": torch.arange(5, dtype=torch.uint8)},
        "objective": {},
    }


def test_nothing_saved_nothing_found(checkpoints):
    assert checkpoints.load() is None
    assert checkpoints.steps() == ()


def test_what_is_saved_comes_back_bit_for_bit(checkpoints):
    values = {"seconds": 0.1 + 0.2, "recent": {"loss": [1 / 3, 2.0]}, "none": None}
    checkpoints.save(7, groups(7), values)
    found = checkpoints.load()
    assert (found.step, found.values) == (7, values)
    for name, tensors in groups(7).items():
        assert found.groups[name].keys() == tensors.keys()
        assert all(torch.equal(found.groups[name][key], tensor) for key, tensor in tensors.items())


def test_the_last_ones_are_kept_and_nothing_else(checkpoints):
    for step in range(1, 6):
        checkpoints.save(step, groups(step), {})
    assert sorted(path.name for path in checkpoints.directory.iterdir()) == ["step-000004", "step-000005"]


def test_steps_are_ordered_as_numbers(checkpoints):
    for step in (999_999, 1_000_000):
        checkpoints.save(step, groups(1), {})
    assert checkpoints.load().step == 1_000_000


def test_tensors_that_share_memory_are_saved(checkpoints):
    shared = torch.ones(4)
    checkpoints.save(1, {"model": {"a": shared, "b": shared, "c": shared[:2], "d": shared.reshape(2, 2).T}}, {})
    assert torch.equal(checkpoints.load().groups["model"]["d"], torch.ones(2, 2))


def test_what_is_half_written_is_never_read_and_swept_away(checkpoints):
    checkpoints.save(1, groups(1), {})
    for name in (".step-000002.partial", ".step-000000.old"):
        (checkpoints.directory / name).mkdir()
        (checkpoints.directory / name / "state.json").write_text("{}")
    assert checkpoints.load().step == 1
    checkpoints.sweep()
    assert [path.name for path in checkpoints.directory.iterdir()] == ["step-000001"]


def test_a_value_that_is_no_json_is_refused_before_anything_is_published(checkpoints):
    with pytest.raises(ValueError):
        checkpoints.save(1, groups(1), {"loss": float("nan")})
    assert list(checkpoints.directory.iterdir()) == []


def damage_missing(path):
    path.unlink()


def damage_truncated(path):
    os.truncate(path, path.stat().st_size - 1)


def damage_flipped(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [damage_missing, damage_truncated, damage_flipped])
@pytest.mark.parametrize("name", ["model.safetensors", "random.safetensors"])
def test_damage_is_refused_by_the_name_of_the_file(checkpoints, damage, name):
    checkpoints.save(1, groups(1), {})
    damage(checkpoints.directory / "step-000001" / name)
    with pytest.raises(InputError, match=f"step-000001/{name}"):
        checkpoints.load()


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"schema": 2, "step": 2, "files": {}, "values": {}}', '{"schema": 2, "step": 1}', "\x00\x01"],
)
@pytest.mark.parametrize("sealed", [False, True])
def test_a_state_that_is_not_ours_is_refused(checkpoints, text, sealed):
    """With the digest of the true state, and with its own."""
    checkpoints.save(1, groups(1), {})
    directory = checkpoints.directory / "step-000001"
    if sealed:
        write_state(directory, text.encode())
    else:
        (directory / "state.json").write_text(text)
    with pytest.raises(InputError, match=r"step-000001/state\.json"):
        checkpoints.load()


@pytest.mark.parametrize("name", ["../outside.safetensors", "/etc/passwd", "model.pt", "sub/model.safetensors"])
def test_a_file_name_that_leads_elsewhere_is_refused(checkpoints, name):
    checkpoints.save(1, groups(1), {})
    entry = {"bytes": 1, "sha256": "0"}
    change_state(checkpoints.directory / "step-000001", lambda state: state | {"files": {name: entry}})
    with pytest.raises(InputError, match=r"expected NAME\.safetensors"):
        checkpoints.load()


def test_the_digest_is_one_that_other_tools_can_check(checkpoints):
    checkpoints.save(1, groups(1), {})
    directory = checkpoints.directory / "step-000001"
    expected = hashlib.sha256((directory / "state.json").read_bytes()).hexdigest()
    assert (directory / "state.sha256").read_text() == f"{expected}  state.json\n"


def test_the_same_step_again_replaces_what_was_there(checkpoints):
    for value in (1, 2):
        checkpoints.save(1, groups(value), {})
    assert checkpoints.load().groups["model"]["count"] == 2
    assert [path.name for path in checkpoints.directory.iterdir()] == ["step-000001"]


def test_a_run_that_was_moved_away_is_not_made_anew(checkpoints):
    checkpoints.directory = checkpoints.directory / "gone" / "checkpoints"
    with pytest.raises(InputError, match="step-000001: cannot be written: No such file or directory"):
        checkpoints.save(1, groups(1), {})
    assert not checkpoints.directory.parent.exists()


@pytest.mark.parametrize("name", ["state.json", "state.sha256", "model.safetensors"])
def test_a_fifo_in_the_place_of_a_file_is_refused(checkpoints, name):
    checkpoints.save(1, groups(1), {})
    path = checkpoints.directory / "step-000001" / name
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(InputError, match=rf"{name}: expected a regular file, found a FIFO"):
        checkpoints.load()
