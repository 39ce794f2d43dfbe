"""How often a teacher is right, and what follows from it."""
