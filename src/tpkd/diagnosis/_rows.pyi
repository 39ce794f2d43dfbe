COLUMNS: int

def diagnose_rows(
    student: tuple[int, int, bool],
    teacher: tuple[int, int, bool],
    labels: int,
    found: int,
    tables: int,
    scratch: int,
    rows: int,
    classes: int,
    threads: int,
    /,
) -> None: ...
def scratch_numbers(classes: int, has_tables: bool, threads: int, /) -> int: ...
