"""`tpkd report`: reads the records of a comparison or a run and writes their page and tables."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from tpkd.class_names import check_class_names
from tpkd.compare.cells import kept_files
from tpkd.compare.grid import Grid, GridCell
from tpkd.compare.owner.answers import TEACHER_STEM, cell_answers
from tpkd.compare.owner.assess import KeptAnswers, assess
from tpkd.compare.owner.networks import read_networks
from tpkd.compare.record import ComparisonRecord, NamedVariant, ReportRecords
from tpkd.compare.run import RECORD_NAME, collect, read_comparison
from tpkd.compare.sweep_record import SWEEP_RECORD_NAME, SweepRecord
from tpkd.config.loading import load_config
from tpkd.config.output import literal_output
from tpkd.diagnosis.record import DiagnosisRecord
from tpkd.errors import InputError
from tpkd.figures.record import IllustrationsRecord
from tpkd.files import read_parsed, write_file
from tpkd.mechanism.record import BlockingRecord, CertificatesRecord, ContinuationRecord, ExactHeadRecord, StudyRecord
from tpkd.mechanism.studies import study_path
from tpkd.objectives import describe
from tpkd.quality.answers import Answers, read_answers
from tpkd.report.methods import Catalogue, Method
from tpkd.training.directory import CONFIG_NAME, RESULT_NAME, read_result

FIGURES_NAME = "figures/figures.json"

AnyStudy = TypeVar("AnyStudy", bound=StudyRecord)


def write_report(directory: Path, *, paper: bool = False) -> list[Path]:
    """Write the page and tables of a comparison or run into its directory; returns the paths written.

    Args:
        directory: what `tpkd compare` or `tpkd train` made.
        paper: whether the page begins with the paper's claims even if the protocol is not the paper's.

    Raises:
        InputError: the directory contains neither, or a record is damaged.
    """
    from tpkd.compare.page import report_files

    written = []
    for name, text in report_files(read_records(directory), paper=paper).items():
        written.append(directory / name)
        write_file(written[-1], text)
    return written


def catalogue(variants: Iterable[NamedVariant] = ()) -> Catalogue:
    """Every registered objective, those of other packages included, as tables and charts show it.

    Variants follow their objectives, and are in the main table even if it leaves out their objective as a control.
    """
    methods = []
    others = list(dict.fromkeys(variants))
    for method in describe():
        accuracy = method.paper_accuracy._asdict() if method.paper_accuracy else {}
        methods.append(Method(method.name, method.title, method.control, method.ablation, accuracy))
        methods += [Method(each.name, each.title) for each in others if each.objective == method.name]
    return Catalogue(tuple(methods))


def read_records(directory: Path) -> ReportRecords:
    """Read all records of a directory that a report uses.

    Each study is taken from the first run that has one, in table order.

    Raises:
        InputError: a record is damaged, or a study belongs to a different run than its directory.
    """
    comparison = read_comparison(directory) or _single_run(directory)
    # Use the diagnosis of one final student, preferably TPKD's.
    cells = sorted(comparison.cells, key=lambda cell: cell.objective != "tpkd")
    paths = (kept_files(directory, cell.name)[2] for cell in cells)
    diagnoses = ((path, read_parsed(path, DiagnosisRecord.from_json)) for path in paths)
    path, diagnosis = next((found for found in diagnoses if found[1] is not None), (directory, None))
    class_names = _check_classes(directory, comparison, {path: diagnosis.class_names} if diagnosis else {})
    return ReportRecords(
        methods=catalogue(comparison.variants),
        comparison=comparison,
        blocking=_study(BlockingRecord, "blocking", directory, comparison),
        exact_head=_study(ExactHeadRecord, "exact-head", directory, comparison),
        certificates=_study(CertificatesRecord, "certificates", directory, comparison),
        continuation=_study(ContinuationRecord, "continuation", directory, comparison),
        diagnosis=diagnosis,
        illustrations=read_parsed(directory / FIGURES_NAME, IllustrationsRecord.from_json),
        assessment=assess(comparison, _kept_answers(directory, comparison, class_names)),
        networks=read_networks(directory),
        sweep=read_parsed(directory / SWEEP_RECORD_NAME, SweepRecord.from_json),
    )


def _kept_answers(directory: Path, comparison: ComparisonRecord, class_names: tuple[str, ...] | None) -> KeptAnswers:
    students: dict[str, dict[int, Answers]] = {}
    for cell in comparison.cells:
        if cell.status == "finished":
            answers = cell_answers(directory, cell)
            if answers is not None:
                students.setdefault(cell.objective, {})[cell.seed] = answers
    teacher = read_answers(directory / TEACHER_STEM) if comparison.teacher is not None else None
    return KeptAnswers(students, teacher, class_names)


def _check_classes(
    directory: Path, comparison: ComparisonRecord, diagnosed: dict[Path, tuple[str, ...] | None]
) -> tuple[str, ...] | None:
    """Refuse to combine records with different class names; returns the names, if a record has them."""
    found = {directory / RECORD_NAME: comparison.data.class_names} if comparison.data else {}
    for cell in comparison.cells:
        result = read_result(directory / cell.directory)
        if result is not None:
            found[directory / cell.directory / RESULT_NAME] = result.class_names
    known = [(path, names) for path, names in {**found, **diagnosed}.items() if names is not None]
    for path, names in known[1:]:
        check_class_names(names, known[0][1], found_in=str(path), expected_in=str(known[0][0]))
    return known[0][1] if known else None


def _single_run(directory: Path) -> ComparisonRecord:
    """A single run as a comparison with one cell."""
    if not (directory / CONFIG_NAME).exists():
        if (directory / SWEEP_RECORD_NAME).exists():
            found = f"a sweep alone, whose table is in {directory / 'tables'}"
            raise InputError(
                f"{directory}: expected a comparison, found {found}; `tpkd compare` without --sweep runs one"
            )
        raise InputError(
            f"{directory}: expected a comparison or a run, found neither comparison.json nor {CONFIG_NAME}"
        )
    config = load_config(directory / CONFIG_NAME, [("output", literal_output(directory))])
    if not config.evaluation.test:
        problem = "expected a run that was evaluated on the test split, found evaluation.test false"
        raise InputError(f"{directory}: {problem}: it is part of a sweep, whose table shows it")
    name = config.objective.row
    cell = GridCell(name, config.seed, config)
    grid = Grid(directory.resolve().name, directory, (name,), (config.seed,), (cell,), config)
    return collect(grid, None, {})


def _study(kind: type[AnyStudy], name: str, directory: Path, comparison: ComparisonRecord) -> AnyStudy | None:
    for cell in comparison.cells:
        path = study_path(name, directory / cell.directory)
        record = read_parsed(path, kind.from_json)
        if record is None:
            continue
        expected: dict[str, Any] = {"objective": comparison.objective_of(cell.objective), "seed": cell.seed}
        result = read_result(directory / cell.directory)
        if result is not None:
            expected |= {key: getattr(result, key) for key in ("data_fingerprint", "teacher_fingerprint")}
        for key, value in expected.items():
            if (found := getattr(record.source, key)) != value:
                raise InputError(f"{path}: source.{key}: expected {value} as the run has it, found {found}")
        return record
    return None
