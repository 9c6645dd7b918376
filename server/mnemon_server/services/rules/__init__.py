"""Merge rules: their files, their inheritance, and which rule applies."""
