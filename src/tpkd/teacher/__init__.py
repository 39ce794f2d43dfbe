"""The teacher of a run: a network or a cache of what it said."""
