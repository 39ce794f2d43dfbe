"""What a run is: a schema of plain data, read from YAML and `key=value` overrides."""
