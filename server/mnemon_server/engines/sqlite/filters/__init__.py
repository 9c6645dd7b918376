"""Filters as SQL: `plan.py` picks the index to read, `compiler.py` writes the conditions."""
