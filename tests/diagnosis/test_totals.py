"""What is kept of a stream does not depend on its blocks."""

from dataclasses import replace

import torch

from tpkd.diagnosis.block import diagnose_block
from tpkd.diagnosis.totals import CostliestExamples, GrowingHistogram


def test_growing_histogram_counts_like_a_fixed_one_in_any_order():
    values = torch.cat([torch.zeros(3), torch.rand(500).double() * 1e-3, torch.rand(500).double() * 40]).double()
    histograms = []
    for order in (torch.arange(len(values)), torch.randperm(len(values)), values.argsort(descending=True)):
        histogram = GrowingHistogram(bins=64)
        for block in values[order].split(17):
            histogram.add(block)
        histograms.append(histogram)
    expected = torch.histc(values, bins=64, min=0, max=64 * histograms[0].width).long()
    for histogram in histograms:
        assert histogram.width == histograms[0].width
        assert torch.equal(histogram.counts, expected)
    width, counts = histograms[0].coarse(bins=10, share=0.9)
    assert sum(counts) == len(values)
    assert len(counts) <= 10
    inside = (values < width * (len(counts) - 1)).sum().item()
    assert sum(counts[:-1]) == inside


def test_the_costliest_are_kept_whatever_the_blocks_and_the_first_of_equal_ones():
    costs = torch.tensor([1.0, 5.0, 2.0, 5.0, 4.0], dtype=torch.float64)
    logits, labels = torch.arange(15, dtype=torch.float64).reshape(5, 3), torch.zeros(5, dtype=torch.long)
    for size in (1, 2, 5):
        kept = CostliestExamples(3)
        for start in range(0, 5, size):
            rows = torch.arange(5)[start : start + size]
            block = diagnose_block(rows, logits[rows], logits[rows], labels[rows], beta=0.5, temperature=1.0)
            kept.add(replace(block, state=replace(block.state, transfer_cost=costs[rows])))
        assert kept.kept.rows.tolist() == [1, 3, 4]
        assert torch.equal(kept.kept.student, logits[[1, 3, 4]])
