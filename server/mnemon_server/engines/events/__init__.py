"""The events of a vault: the newest in records.db, and the others in sealed segments, which are SQLite files."""
