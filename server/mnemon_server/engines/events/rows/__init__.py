"""The timeline's events as rows of records.db, and the text index of events."""
