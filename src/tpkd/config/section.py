"""What every section of a configuration has in common."""

from pydantic import ConfigDict

SECTION = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)
"""Frozen; unknown keys and numbers that are not finite are refused; what stands below a key describes it."""
