"""The events of a timeline that are rows of records.db, and their words."""
