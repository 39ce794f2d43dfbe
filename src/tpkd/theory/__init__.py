"""Statements about outputs: what is blocked, what transfer costs, what protection keeps (sections 4 and 5; appendices A-C)."""

from tpkd.theory.blocking import is_blocked
from tpkd.theory.compensation import min_confidence, min_log_odds, transfer_cost
from tpkd.theory.diagnosis import Diagnosis, diagnose

__all__ = ["Diagnosis", "diagnose", "is_blocked", "min_confidence", "min_log_odds", "transfer_cost"]
