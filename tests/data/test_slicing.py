import torch

from tpkd.data.batches import SampleBatch
from tpkd.data.slicing import sort_by_length, to_device, trim_padding

MASK = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0]])


def texts():
    inputs = {"input_ids": MASK * torch.tensor([[5], [6], [7]]), "attention_mask": MASK}
    return SampleBatch(inputs, torch.tensor([0, 1, 2]), torch.tensor([10, 11, 12]), torch.tensor([3, 4, 5]))


def test_texts_are_sorted_with_everything_that_belongs_to_them():
    found = sort_by_length(texts())
    assert found.inputs["attention_mask"].sum(-1).tolist() == [1, 2, 3]
    assert found.inputs["input_ids"][:, 0].tolist() == [6, 7, 5]
    assert [found.labels.tolist(), found.sample_ids.tolist(), found.view_ids.tolist()] == [
        *([1, 2, 0], [11, 12, 10], [4, 5, 3])
    ]


def test_only_columns_that_are_padding_in_every_row_are_trimmed():
    assert trim_padding(texts().inputs)["input_ids"].shape == (3, 3)
    assert trim_padding(texts().take(slice(1, 3)).inputs)["attention_mask"].tolist() == [[1, 0], [1, 1]]


def test_vectors_have_no_length():
    vectors = SampleBatch(torch.randn(2, 3), *torch.zeros(3, 2, dtype=torch.long))
    assert sort_by_length(vectors) is vectors
    assert trim_padding(vectors.inputs) is vectors.inputs
    assert to_device(vectors.inputs, torch.device("cpu")).equal(vectors.inputs)
