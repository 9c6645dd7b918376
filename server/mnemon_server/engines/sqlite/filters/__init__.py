"""Filters as SQL: `compiler.py` picks the index to read and writes the conditions."""
