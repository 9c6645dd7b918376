"""Quarantines: hides the records of a source, reversibly."""
