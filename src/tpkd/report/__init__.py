"""Records in; readings, tables, figures and pages out."""
