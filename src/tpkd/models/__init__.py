"""Models by name, and one interface for all of them: logits, features and the classifier."""
