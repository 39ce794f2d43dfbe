"""The `tpkd` command: verbs only; they parse, call and print."""
