"""Runs whose last epoch is not their best: from some step on, the student knows nothing."""

import torch

from tpkd.training.step import take_step


def forgetful(lost):
    """A step of training; the head of the student is zero after steps from `lost` on."""

    def step(run, number, samples, **options):
        outcome = take_step(run, number, samples, **options)
        if number >= lost:
            with torch.no_grad():
                run.student.classifier.weight.zero_()
        return outcome

    return step


def with_batch_norm(build):
    """What builds a student, with statistics of the batch after its first layer."""

    def build_one(*arguments, **options):
        student = build(*arguments, **options)
        student.layers[0] = torch.nn.Sequential(student.layers[0], torch.nn.BatchNorm1d(student.layer_sizes[1]))
        return student

    return build_one
