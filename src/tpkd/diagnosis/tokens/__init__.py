"""`tpkd diagnose --tokens`: what a teacher can still teach a language model, token by token."""
