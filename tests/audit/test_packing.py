"""Columns and scripts: what is packed is what a browser unpacks, and chunks have the rows they should."""

import base64
import json

import numpy as np
import pytest

from tpkd.audit.packing import KINDS, ChunkWriter, class_type, packed_column, write_script


def taken(path):
    """The name and the data that a script hands over."""
    text = path.read_text(encoding="ascii")
    assert text.startswith("tpkdAudit.take(")
    assert text.endswith(");\n")
    return json.loads(f"[{text.removeprefix('tpkdAudit.take(').removesuffix(');' + chr(10))}]")


@pytest.mark.parametrize("kind", KINDS)
def test_columns_survive(kind):
    values = np.arange(6).reshape(2, 3).astype(kind)
    packed = packed_column(values)
    assert packed["type"] == KINDS[kind]
    found = np.frombuffer(base64.b64decode(packed["base64"]), np.dtype(kind).newbyteorder("<"))
    assert found.tolist() == values.flatten().tolist()


def test_big_endian_columns_are_turned_round():
    values = np.array([1.0, 2.0], dtype=">f4").astype(">f4")
    assert packed_column(values)["base64"] == "AACAPwAAAEA="


def test_the_largest_class_fits_its_type():
    for classes in (3, 1 << 16, (1 << 16) + 1):
        assert np.array([classes - 1]).astype(class_type(classes)).tolist() == [classes - 1]


def test_scripts_hold_no_sign_that_ends_them(tmp_path):
    write_script(tmp_path, "index", {"id": ["</script>", "\u2028", "\ud800"]})
    assert taken(tmp_path / "index.js") == ["index", {"id": ["</script>", "\u2028", "\ud800"]}]
    assert "<" not in (tmp_path / "index.js").read_text()


@pytest.mark.parametrize("blocks", [[10], [3, 3, 4], [1] * 10, [4, 4, 2], [9, 1]])
def test_chunks_do_not_depend_on_blocks(tmp_path, blocks):
    writer, done = ChunkWriter(tmp_path, "inputs", 4), 0
    for rows in blocks:
        part = range(done, done + rows)
        writer.add({"shown": [str(row) for row in part], "row": np.array(part, np.uint32)})
        done += rows
    writer.close()
    assert writer.written == 3
    chunks = [taken(tmp_path / "inputs" / f"{number}.js") for number in range(3)]
    assert [name for name, _ in chunks] == ["inputs/0", "inputs/1", "inputs/2"]
    assert [data["shown"] for _, data in chunks] == [list("0123"), list("4567"), list("89")]
    last = np.frombuffer(base64.b64decode(chunks[2][1]["row"]["base64"]), "<u4")
    assert last.tolist() == [8, 9]
