"""Recall of every search on every set, beside plain ones: the sets, the searches, and the table."""
