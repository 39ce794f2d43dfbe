"""Whether a loss does what its callers take for granted."""
