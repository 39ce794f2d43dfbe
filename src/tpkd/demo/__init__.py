"""The whole paper on a small data set."""
