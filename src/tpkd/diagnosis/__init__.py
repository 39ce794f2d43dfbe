"""From logits in files to what a teacher can still teach: record, page and terminal."""
