"""How often a teacher is right, and what that says."""
