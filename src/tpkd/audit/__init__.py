"""`tpkd audit`: a gallery of examples, what their teacher can still teach, and answers lost and won."""
