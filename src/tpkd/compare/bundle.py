"""Everything a report is made from."""

from dataclasses import dataclass

from tpkd.compare.record import ComparisonRecord
from tpkd.diagnosis.record import DiagnosisRecord
from tpkd.figures.record import IllustrationsRecord
from tpkd.mechanism.record import BlockingRecord, CertificatesRecord, ContinuationRecord, ExactHeadRecord, StudyRecord


@dataclass(frozen=True)
class ReportRecords:
    """The records of a comparison; all but the first may be missing."""

    comparison: ComparisonRecord
    blocking: BlockingRecord | None = None
    exact_head: ExactHeadRecord | None = None
    certificates: CertificatesRecord | None = None
    continuation: ContinuationRecord | None = None
    diagnosis: DiagnosisRecord | None = None
    """Of one final student."""
    illustrations: IllustrationsRecord | None = None

    @property
    def studies(self) -> dict[str, StudyRecord]:
        """The mechanism studies that are there, by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, StudyRecord)}

    @property
    def paper_domain(self) -> str | None:
        """The paper's column to show beside ours; None unless the protocol is the paper's."""
        paper = self.comparison.paper
        return paper.domain if not paper.differences else None
