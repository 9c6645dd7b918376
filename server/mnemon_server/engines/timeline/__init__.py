"""Segments: files that hold the events of a timeline, frame by frame, and say for themselves whether they are whole."""
