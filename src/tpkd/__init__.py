"""tpkd."""
