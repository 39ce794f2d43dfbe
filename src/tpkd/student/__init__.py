"""A trained student on its own: loaded, asked for predictions, and handed to other libraries."""
