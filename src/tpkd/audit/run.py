"""`tpkd audit`: every example of some students in one pass, and the folder that shows them."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import mkdtemp

import numpy as np

from tpkd.audit.collecting import CHUNK_ROWS, Collected, Collector, write_index
from tpkd.audit.packing import write_script
from tpkd.audit.page import audit_page
from tpkd.audit.record import AuditRecord
from tpkd.audit.samples import Samples, open_samples, readable
from tpkd.audit.sources import Sources
from tpkd.audit.summary import all_flips, student_summary
from tpkd.audit.table import STUDENT_COLUMNS, check_table, table_columns, write_table
from tpkd.diagnosis.block import SplitBlock, diagnose_block
from tpkd.diagnosis.file_names import short_names, without_suffixes
from tpkd.diagnosis.inputs import DiagnosisInputs, Form, open_inputs
from tpkd.diagnosis.labels import IGNORED
from tpkd.diagnosis.run import BLOCK_ELEMENTS
from tpkd.diagnosis.top_k_file import TopKFile
from tpkd.errors import InputError
from tpkd.files import read_parsed, write_file, writing
from tpkd.geometry.constants import PAPER_BETA
from tpkd.geometry.inputs import class_indices

RECORD_NAME, PAGE_NAME, DATA_NAME = "audit.json", "index.html", "data"
OnRows = Callable[[int, int], None]
"""Called with how many rows are done and how many there are."""


def audit_files(
    sources: Sources,
    out: Path,
    *,
    form: Form = "logits",
    label_column: str | None = None,
    beta: float = PAPER_BETA,
    table: Path | None = None,
    advance: OnRows = lambda done, total: None,
) -> AuditRecord:
    """Write the folder of an audit: `index.html`, which opens from a disk, `audit.json` and `data/`.

    Args:
        sources: students, teacher, labels and samples.
        out: a new or empty directory, or that of an earlier audit, which is replaced when this one is complete.
        form: what the files of logits hold.
        label_column: of the labels in their file.
        beta: of the protected step.
        table: also write all examples here, as CSV or Parquet.
        advance: progress.

    Raises:
        InputError: names the file and row that is wrong, before anything is written.
    """
    check_folder(out)
    if table is not None:
        check_table(table)
    inputs = open_inputs(
        list(sources.students),
        sources.teacher,
        sources.labels,
        class_names=sources.class_names,
        ids=sources.ids,
        form=form,
        label_column=label_column,
    )
    if inputs.has_soft_labels or isinstance(inputs.teacher, TopKFile):
        found = "probabilities as labels" if inputs.has_soft_labels else "a truncated teacher"
        raise InputError(f"audit: expected one class per example and a whole teacher, found {found}; see tpkd diagnose")
    rows = max(1, BLOCK_ELEMENTS // inputs.num_classes)
    checked = inputs.check_values(rows)
    samples = open_samples(sources.dataset, sources.ids, _all_labels(inputs), ignored=IGNORED)
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        fresh = Path(mkdtemp(dir=out, prefix=f".{DATA_NAME}-"))
    try:
        collector = Collector(fresh, samples, len(inputs.students), beta=beta)
        for blocks in _blocks(inputs, rows, beta, advance):
            collector.add(blocks)
        collected = collector.finish()
        record = _record(sources, inputs, samples, collected, checked.ignored, beta)
        write_index(fresh, collected, samples.names)
        write_script(fresh, "record", record.to_dict())
        if table is not None:
            write_examples(table, record, collected, samples)
        _publish(out, fresh, record)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return record


def check_folder(out: Path) -> None:
    """Refuse a directory that holds anything but an earlier audit.

    Example:
        >>> check_folder(Path("no-such-folder"))
    """
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise InputError(f"{out}: expected a new directory or an earlier audit, found a link or a file")
    if not out.exists():
        return
    # Left by an audit that was killed; what it had written is hidden.
    found = [entry for entry in out.iterdir() if not entry.name.startswith(f".{DATA_NAME}-")]
    if found and read_parsed(out / RECORD_NAME, AuditRecord.from_json) is None:
        raise InputError(f"{out}: expected a new or empty directory or an earlier audit, found other files")


def write_examples(table: Path, record: AuditRecord, collected: Collected, samples: Samples) -> None:
    """Write the table of all examples."""
    students = {}
    for student, columns in zip(record.students, collected.students, strict=True):
        flags = {"right": columns["answer"] == collected.shared["label"], "blocked": columns["blocked"] > 0}
        students[student.name] = {name: {**columns, **flags}[name] for name in STUDENT_COLUMNS}
    values = table_columns(samples, collected.rows, record.class_names, collected.shared, students)
    write_table(table, values, samples, collected.rows)


def _all_labels(inputs: DiagnosisInputs) -> np.ndarray:
    parts = [class_indices(block).numpy() for block in inputs.labels.blocks(1 << 20)]
    return np.concatenate(parts).astype(np.int64)


def _blocks(inputs: DiagnosisInputs, rows: int, beta: float, advance: OnRows) -> Iterator[list[SplitBlock]]:
    """The same examples under every student, diagnosed."""
    done = 0
    for together in zip(*(inputs.blocks(student, rows) for student in inputs.students), strict=True):
        done += together[0].read
        if len(together[0].rows):
            yield [
                diagnose_block(each.rows, each.student, each.teacher, each.labels, beta=beta, temperature=1.0)
                for each in together
            ]
        advance(done, inputs.examples)


def _record(
    sources: Sources, inputs: DiagnosisInputs, samples: Samples, collected: Collected, ignored: int, beta: float
) -> AuditRecord:
    files = [readable(sources.shown(student.path)) for student in inputs.students]
    names = without_suffixes(short_names(files))
    shared, dataset = collected.shared, sources.dataset
    students = zip(names, files, collected.students, strict=True)
    return AuditRecord(
        teacher=readable(sources.shown(inputs.teacher.path)),
        labels=readable(sources.shown(inputs.labels.path)),
        data=None if dataset is None else readable(f"{dataset.name} ({dataset.split})"),
        kind=samples.kind,
        examples=len(collected.rows),
        left_out=ignored,
        class_names=tuple(map(readable, inputs.class_names)),
        beta=float(beta),
        chunk_rows=CHUNK_ROWS,
        teacher_right=int((shared["teacher_answer"] == shared["label"]).sum()),
        students=tuple(student_summary(name, file, shared, columns) for name, file, columns in students),
        flips=tuple(all_flips(collected, inputs.num_classes)),
        notes=_notes(samples, ignored),
    )


def _notes(samples: Samples, ignored: int) -> tuple[str, ...]:
    notes = []
    if ignored:
        notes.append(f"{ignored:,} rows are left out: their label is {IGNORED}.")
    if samples.undecodable:
        notes.append(f"{samples.undecodable:,} images could not be decoded; the gallery shows their names.")
    return tuple(notes)


def _publish(out: Path, fresh: Path, record: AuditRecord) -> None:
    """Put the new files in the place of the old ones; until then, an earlier audit stays as it was."""
    write_file(out / RECORD_NAME, record.to_json())  # first: it says that whatever else is there is an audit's
    with writing(out):
        fresh.chmod(0o755)  # a temporary folder is private, and a page may be served
        old = Path(mkdtemp(dir=out, prefix=f".{DATA_NAME}-"))
        if (out / DATA_NAME).exists():
            (out / DATA_NAME).rename(old / DATA_NAME)
        fresh.rename(out / DATA_NAME)
        shutil.rmtree(old)
    write_file(out / PAGE_NAME, audit_page(record))
