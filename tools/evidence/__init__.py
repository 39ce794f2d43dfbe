"""The evidence page: from packed records to tables, figures and sentences."""
