"""Reads the files of other programs: one reader for each form."""
