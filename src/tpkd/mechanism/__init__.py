"""The studies of the paper on the snapshots of a run, with their records, tables and charts."""
