"""Models by name, and one face for all of them: logits, features, and the classifier between them."""
