"""The index of a timeline, in memory: which events there are, and where."""
