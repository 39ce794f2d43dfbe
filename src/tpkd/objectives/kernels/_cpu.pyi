LANES: int
MOST_CORRECT: int
"""Classes to which a soft label may give probability."""

_Logits = tuple[int, int, int]
"""Address, bytes from row to row, and the kernel's number of a dtype."""

def losses_and_directions(
    student: _Logits,
    teacher: _Logits,
    gradient: _Logits,
    soft: _Logits,
    top_k: tuple[int, int, int, int, int],
    labels: int,
    valid: int,
    losses: int,
    scratch: int,
    rows: int,
    classes: int,
    beta: float,
    temperature: float,
    weight: float,
    tolerance: float,
    threads: int,
    /,
) -> tuple[float, int, int]: ...
def scratch_bytes(classes: int, places: int, tempered: bool, soft: bool, /) -> int: ...
