"""A thousand cases for the explorer's JavaScript: random ones of every kind, and the edges between them."""

import torch

from tpkd.figures.cases import case_numbers

COUNT = 1000
SETTINGS = ((0.5, 1.0), (1.0, 4.0), (0.25, 0.5), (2.0, 2.0))
"""Beta and temperature."""
KINDS = ("random", "sharp", "equal", "same relations", "certain", "teacher wrong", "tight", "border", "mixed")


def make_cases():
    """Cases with the numbers of the library, as the page holds them, and the kind of each."""
    generator = torch.Generator().manual_seed(23)
    cases = []
    groups = [(count, settings) for count in (3, 4, 5, 6) for settings in SETTINGS]
    for index, (count, (beta, temperature)) in enumerate(groups):
        size = COUNT // len(groups) + (index < COUNT % len(groups))
        kinds = [KINDS[row % len(KINDS)] for row in range(size)]
        rows = [_row(kind, count, generator) for kind in kinds]
        z, zt, labels = (torch.stack(part) for part in zip(*rows, strict=True))
        position, budget = (torch.rand(size, generator=generator, dtype=torch.float64) for _ in range(2))
        position[::7], position[1::7], budget[::5] = 0.0, 1.0, 0.0
        settings = {"beta": beta, "temperature": temperature}
        numbers = case_numbers(z, zt, labels, **settings, position=position, budget=budget)
        cases += [
            {
                "kind": kind,
                "student_logits": z[row].tolist(),
                "teacher_logits": zt[row].tolist(),
                "labels": labels[row].tolist(),
                **settings,
                "position": position[row].item(),
                "budget": budget[row].item(),
                "numbers": numbers[row],
            }
            for row, kind in enumerate(kinds)
        ]
    return cases


def _row(kind, count, generator):
    """Logits of a student and a teacher, and a label."""
    z, zt = torch.randn(2, count, generator=generator, dtype=torch.float64) * (6.0 if kind == "sharp" else 1.5)
    y = int(torch.randint(count, (), generator=generator))
    labels = torch.zeros(count, dtype=torch.float64)
    labels[y] = 1.0
    others = labels == 0
    if kind == "equal":
        zt = z.clone()
    elif kind == "same relations":
        zt[others] = z[others] + 1.0
    elif kind == "certain":
        z[y] += 25 + 10 * torch.rand((), generator=generator, dtype=torch.float64)
    elif kind == "teacher wrong":
        zt[y] = zt.min() - 3
    elif kind == "tight":  # the teacher asks for one class alone
        z[others] = zt[others] = 0.0
        zt[int(others.nonzero()[0])] = 2.0
    elif kind == "border":  # p_j = t_j for one class, and p_j < t_j for the others
        t = zt.softmax(-1)
        p = torch.where(others, t * 0.5, 0.0)
        p[int(others.nonzero()[0])] = t[int(others.nonzero()[0])]
        p[y] = 1 - p.sum()
        z, zt = p.log(), t.log()
    elif kind == "mixed" and count > 3:
        second = int(others.nonzero()[int(torch.randint(count - 1, (), generator=generator))])
        share = 0.05 + 0.9 * torch.rand((), generator=generator, dtype=torch.float64)
        labels[y], labels[second] = share, 1 - share
    return z, zt, labels
