LANES: int

_Logits = tuple[int, int, int]
"""Address, bytes from row to row, and the kernel's number of a dtype."""

def losses_and_directions(
    student: _Logits,
    teacher: _Logits,
    gradient: _Logits,
    labels: int,
    valid: int,
    losses: int,
    scratch: int,
    rows: int,
    classes: int,
    beta: float,
    weight: float,
    threads: int,
    /,
) -> float: ...
