"""From text files to documents."""

import pytest

from tpkd.errors import InputError
from tpkd.tokens.documents import documents_sha256, read_documents, split_documents


def test_a_file_is_a_document_unless_a_line_begins_one(tmp_path):
    text = "preface\n= a =\none\n= b =\ntwo\n"
    (tmp_path / "x.txt").write_text(text)
    assert read_documents(tmp_path / "x.txt") == (text,)
    assert read_documents(tmp_path / "x.txt", "= . =") == ("preface\n", "= a =\none\n", "= b =\ntwo\n")
    assert "".join(split_documents(text, "= . =")) == text


def test_a_folder_is_read_in_the_order_of_its_paths_without_blank_files(tmp_path):
    (tmp_path / "sub").mkdir()
    for name, text in (
        ("b.txt", "second"),
        ("a.txt", "first"),
        ("sub/c.txt", "third"),
        ("d.txt", " \n"),
        ("e.md", "no"),
    ):
        (tmp_path / name).write_text(text)
    assert read_documents(tmp_path) == ("first", "second", "third")


def test_a_pattern_must_match_the_whole_line(tmp_path):
    assert split_documents("= a = b\n= c =\n", "= . =") == ("= a = b\n", "= c =\n")


@pytest.mark.parametrize("content", ["", " \n\n"])
def test_no_text_is_refused(tmp_path, content):
    (tmp_path / "x.txt").write_text(content)
    with pytest.raises(InputError, match=r"x\.txt: expected text, found none"):
        read_documents(tmp_path / "x.txt")


def test_a_folder_without_text_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"expected files whose names end in \.txt"):
        read_documents(tmp_path)


def test_the_hash_knows_text_order_and_where_one_ends():
    hashes = {documents_sha256(texts) for texts in (["ab", "c"], ["a", "bc"], ["c", "ab"], ["abc"], ["ab", "d"])}
    assert len(hashes) == 5
