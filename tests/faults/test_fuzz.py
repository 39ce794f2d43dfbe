"""Random damage to configurations and to headers of arrays: an answer, or one line that names the file; nothing else.

A seed stands in the name of its test; `pytest tests/faults/test_fuzz.py -k "config and 7"` replays it.
"""

import contextlib
import json
import os
import random
import resource
import signal
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
import yaml
from pyarrow import parquet

from tpkd.arrays import open_array, open_texts
from tpkd.config.loading import config_yaml, load_config
from tpkd.config.schema import RunConfig
from tpkd.errors import InputError
from training.tiny import plain_config

FULL = os.environ.get("TPKD_FAULTS") == "full"
SEEDS = range(200 if FULL else 10)
CASES = {"config": 20, "override": 10, "npy": 12, "safetensors": 12, "pt": 12, "csv": 12, "parquet": 24}
"""Of each seed: 1,020 cases in the short form."""
SECONDS, BYTES = 20, 1 << 30
"""What one case may take; the memory counts beside what the process holds."""

NASTY = (
    *("", "~", "null", "true", "1e300", "-1e300", "1e-320", ".nan", ".inf", "-1", "0", "9223372036854775808", "9" * 90),
    *(
        "9" * 5000,
        "0x" + "f" * 400,
        "1" + ":1" * 400,
        "!!bool x",
        "!!timestamp x",
        "!!int ''",
        "!!float ''",
        "!!set {a}",
    ),
    *(
        "!!binary gIE=",
        "!!omap [a]",
        "2020-01-01",
        "0001-01-01 00:00:00+14:00",
        "[]",
        "{}",
        "[[[]]]",
        "[" * 90,
        "{a: {b: c}}",
    ),
    *(
        "&a 1",
        "*a",
        "<<: 1",
        "!x",
        "!!python/name:os.system",
        "s3://bucket/x",
        '"\\0"',
        '"\\ud800"',
        '"\\n"',
        "x" * 300,
    ),
    *(
        "\x00",
        "\x07",
        "\x1b[2J",
        "\ud800",
        "\ufffe",
        "\u2028",
        "%",
        "@",
        "`",
        "---",
        "...",
        "|",
        ">",
        "? a",
        ": ",
        "#",
        "'",
    ),
)


@contextlib.contextmanager
def bounded():
    """End what hangs, and refuse memory beyond what a damaged file may cost."""

    def give_up(*_):
        raise TimeoutError(f"more than {SECONDS} seconds")

    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGALRM, give_up)
    resource.setrlimit(resource.RLIMIT_AS, (held + BYTES, limits[1]))
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, limits)


def survives(read, name):
    """Whether the input was taken; else it was refused in one line with its name. Anything else is raised."""
    message = None
    with bounded():
        try:
            read()
        except InputError as error:
            message = str(error)
    if message is None:
        return True
    assert message.isprintable()
    assert len(message) < 5_000
    assert name in message
    return False


def paths(section=RunConfig, prefix=""):
    """Every dotted key of the schema."""
    from tpkd.config.loading import _models

    for name, field in section.model_fields.items():
        yield f"{prefix}{name}"
        for inner in _models(field.annotation):
            yield from paths(inner, f"{prefix}{name}.")


KEYS = sorted(set(paths()))


def damaged(data, random_):
    """Some bytes changed, cut out, doubled or put in."""
    data = bytearray(data)
    for _ in range(random_.choice((1, 1, 2, 5, 20))):
        place, other = sorted(random_.randrange(len(data) + 1) for _ in range(2))
        kind = random_.randrange(5)
        if kind == 0 and data:
            data[min(place, len(data) - 1)] = random_.randrange(256)
        elif kind == 1:
            del data[place : min(other, place + 40)]
        elif kind == 2:
            data[place:place] = data[place : min(other, place + 40)]
        elif kind == 3:
            data[place:place] = random_.choice(NASTY).encode(errors="surrogatepass")
        else:
            data[place:place] = bytes(random_.randrange(256) for _ in range(random_.randrange(1, 9)))
    return bytes(data)


@pytest.mark.parametrize("seed", SEEDS)
def test_config(tmp_path, record_property, seed):
    random_, path = random.Random(seed), tmp_path / "run.yaml"
    whole = yaml.safe_dump(plain_config(tmp_path)).encode()
    for _ in range(CASES["config"]):
        path.write_bytes(damaged(whole, random_))
        survives(lambda: config_yaml(load_config(path)), str(path))
    record_property("fault: damaged configurations", CASES["config"])


@pytest.mark.parametrize("seed", SEEDS)
def test_override(tmp_path, record_property, seed):
    random_, path = random.Random(1_000 + seed), tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(plain_config(tmp_path)))
    for _ in range(CASES["override"]):
        override = f"{random_.choice(KEYS)}={random_.choice(NASTY)}"

        def read(override=override):
            config = load_config(path, [override])
            kept = tmp_path / "kept.yaml"
            kept.write_text(config_yaml(config))
            assert load_config(kept).model_dump(exclude={"methods"}) == config.model_dump(exclude={"methods"})

        key = override.partition("=")[0]
        survives(read, key.split(".")[0])
    record_property("fault: hostile overrides", CASES["override"])


SHAPES = (
    "(5, 3)",
    "(2**62, 3)",
    "(4611686018427387904, 4)",
    "(-1, 3)",
    "(5,)",
    "()",
    "(0, 3)",
    "(5, 3, 0)",
    "(1e9, 3)",
)
SHAPES += ("(True, 3)", "None", "'x'", "(99999999999999999999999,)", "(9223372036854775807, 2)", "[5, 3]", "(5, (3,))")
TYPES = (
    "'<f4'",
    "'>f8'",
    "'|O'",
    "'<M8[s]'",
    "'<U9999999999'",
    "'|V0'",
    "'<f2'",
    "[('a', '<f4')]",
    "'x'",
    "1",
    "'<f4'*9",
)


def numpy_file(random_):
    """A `.npy` file whose header says something else than its data, or nothing that can be read."""
    header = f"{{'descr': {random_.choice(TYPES)}, 'fortran_order': {random_.choice(('False', 'True', '2', '[]'))}, "
    header += f"'shape': {random_.choice(SHAPES)}, }}"
    text = header.encode()
    if random_.random() < 0.5:
        text = damaged(text, random_)
    if random_.random() < 0.1:
        text = b"(" * 5_000 + text
    version = random_.choice(((1, 0), (1, 0), (2, 0), (3, 0), (9, 9)))
    length = len(text) if random_.random() < 0.8 else random_.choice((0, 1, 65_535, 2**32 - 1))
    size = struct.pack("<H", length & 0xFFFF) if version[0] == 1 else struct.pack("<I", length)
    data = b"\x93NUMPY" + bytes(version) + size + text + np.zeros((5, 3), np.float32).tobytes()
    return damaged(data, random_) if random_.random() < 0.2 else data


def read_array(path):
    array = open_array(path)
    for block in array.blocks(2):
        assert len(block) <= 2


def read_texts(path):
    texts = open_texts(path)
    for block in texts.blocks(2) if texts is not None else ():
        assert all(isinstance(text, str) for text in block)


@pytest.mark.parametrize("seed", SEEDS)
def test_npy(tmp_path, record_property, seed):
    random_, path = random.Random(2_000 + seed), tmp_path / "logits.npy"
    for _ in range(CASES["npy"]):
        path.write_bytes(numpy_file(random_))
        survives(lambda: read_array(path), str(path))
    record_property("fault: damaged npy headers", CASES["npy"])


def safetensors_file(random_):
    """A `.safetensors` file whose header does not fit its data, or is not one."""
    shape = random_.choice(([5, 3], [2**62, 4], [-1], [], [0, 3], [2**63], [1.5], "x", None, [5] * 100, [2**64 - 1, 2]))
    offsets = random_.choice(([0, 60], [0, 2**63], [60, 0], [-1, 60], [0], [], None, [0, 59], [2**62, 2**62 + 60]))
    entry = {
        "dtype": random_.choice(("F32", "F64", "BF16", "I64", "BOOL", "X", 1)),
        "shape": shape,
        "data_offsets": offsets,
    }
    entry = {key: value for key, value in entry.items() if random_.random() < 0.95}
    header = (
        {"logits": entry} if random_.random() < 0.8 else {"logits": entry, "other": entry, "__metadata__": {"a": 1}}
    )
    text = json.dumps(header).encode()
    if random_.random() < 0.5:
        text = damaged(text, random_)
    if random_.random() < 0.1:
        text = b"[" * 5_000
    length = len(text) if random_.random() < 0.8 else random_.choice((0, 1, 2**31, 2**63, 2**64 - 1, 99_000_000))
    data = struct.pack("<Q", length) + text + bytes(60)
    return damaged(data, random_) if random_.random() < 0.2 else data


@pytest.mark.parametrize("seed", SEEDS)
def test_safetensors(tmp_path, record_property, seed):
    random_, path = random.Random(3_000 + seed), tmp_path / "logits.safetensors"
    for _ in range(CASES["safetensors"]):
        path.write_bytes(safetensors_file(random_))
        survives(lambda: read_array(path), str(path))
    record_property("fault: damaged safetensors headers", CASES["safetensors"])


def written(path, random_):
    """The bytes of an undamaged file of numbers."""
    values = np.arange(15, dtype=np.float32).reshape(5, 3) / 7
    if path.suffix == ".pt":
        content = random_.choice((torch.from_numpy(values), {"logits": torch.from_numpy(values), "epoch": 3}))
        torch.save(content, path, _use_new_zipfile_serialization=random_.random() < 0.7)
    elif path.suffix == ".csv":
        names = random_.choice(("", "cat,dog,bird\n", '"cat, small",dog,label\n'))
        path.write_text(names + "\n".join(",".join(map(str, row)) for row in values.tolist()))
    else:
        wide = {name: values[:, place] for place, name in enumerate(("cat", "dog", "bird"))}
        columns = random_.choice((wide, {"logits": values.tolist()}, {**wide, "label": ["a", "b", "a", "b", "a"]}))
        options = {"compression": random_.choice(("none", "snappy", "zstd")), "row_group_size": random_.choice((2, 9))}
        parquet.write_table(pa.table(columns), path, use_dictionary=random_.random() < 0.5, **options)
    return path.read_bytes()


@pytest.mark.parametrize("kind", ["pt", "csv", "parquet"])
@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_files(tmp_path, record_property, kind, seed):
    random_, path = random.Random(f"{kind} {seed}"), tmp_path / f"logits.{kind}"
    for _ in range(CASES[kind]):
        path.write_bytes(damaged(written(path, random_), random_))
        survives(lambda: read_array(path), str(path))
        survives(lambda: read_texts(path), str(path))
    record_property(f"fault: damaged {kind} files", CASES[kind])


def test_the_undamaged_ones_are_taken(tmp_path):
    config, array = tmp_path / "run.yaml", tmp_path / "logits.npy"
    config.write_text(yaml.safe_dump(plain_config(tmp_path)))
    np.save(array, np.zeros((5, 3), np.float32))
    assert survives(lambda: load_config(config), "")
    assert survives(lambda: read_array(array), "")
    for kind in ("pt", "csv", "parquet"):
        for seed in range(20):
            written(tmp_path / f"logits.{kind}", random.Random(seed))
            assert survives(lambda path=tmp_path / f"logits.{kind}": read_array(path), "")
    assert len(SEEDS) * sum(CASES.values()) >= 500


def test_what_hangs_or_grows_is_noticed(monkeypatch):
    with pytest.raises(MemoryError):
        survives(lambda: bytearray(4 * BYTES), "")
    monkeypatch.setitem(globals(), "SECONDS", 1)
    with pytest.raises(TimeoutError):
        survives(signal.pause, "")
