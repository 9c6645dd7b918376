"""Earlier versions of records: listed, restored, and removed when they are old."""
