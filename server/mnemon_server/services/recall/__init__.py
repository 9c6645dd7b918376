"""Recall: one search over all kinds of records, packed for a prompt."""
