"""Several comparisons, such as two domains, in one table and on one page."""
