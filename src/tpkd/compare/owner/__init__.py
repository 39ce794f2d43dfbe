"""What the owner of a comparison wants to know first: which student is best, how good it is, and what it costs."""
