"""Language models: text into blocks, a teacher's cache of them, and a student trained from it."""
