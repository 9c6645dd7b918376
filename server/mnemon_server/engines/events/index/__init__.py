"""The in-memory index of a timeline: which events exist, and where they are stored."""
