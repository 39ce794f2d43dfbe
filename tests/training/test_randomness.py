import random

import numpy as np
import torch
from torch import nn

from tpkd.training.randomness import preserved, random_state, replayed, restore_random_state


def draw():
    return [
        random.random(),
        random.gauss(0, 1),
        np.random.rand(),
        np.random.randn(),
        torch.rand(3).tolist(),
        torch.randn(5).tolist(),
    ]


def test_every_generator_comes_back():
    draw()  # leaves a second Gaussian number waiting in Python's and NumPy's generators
    state = random_state()
    first = draw()
    restore_random_state(state)
    assert draw() == first
    assert draw() != first


def test_replaying_repeats_the_draws_and_leaves_no_trace():
    norm = nn.BatchNorm1d(2)
    state = random_state()
    first = draw()
    expected_next = None
    now = random_state()
    expected_next = draw()
    restore_random_state(now)
    before = {name: value.clone() for name, value in norm.state_dict().items()}
    with replayed(state, norm):
        assert draw() == first
        norm(torch.randn(4, 2))
    assert draw() == expected_next
    assert all(torch.equal(value, before[name]) for name, value in norm.state_dict().items())


def test_replaying_cleans_up_after_an_error():
    state = random_state()
    draw()
    now = random_state()
    try:
        with replayed(state, nn.Identity()):
            draw()
            raise KeyError
    except KeyError:
        pass
    assert all(torch.equal(value, random_state()[name]) for name, value in now.items())


def test_what_others_draw_leaves_no_trace():
    now = random_state()
    expected = draw()
    restore_random_state(now)
    with preserved():
        assert draw() == expected
    assert draw() == expected
