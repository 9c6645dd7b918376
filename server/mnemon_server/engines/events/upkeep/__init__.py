"""Maintenance of a timeline's files: writing, sealing, compacting, checking and repairing."""
