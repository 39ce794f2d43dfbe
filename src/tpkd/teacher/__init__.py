"""The teacher of a run: a network, or a cache of its outputs."""
