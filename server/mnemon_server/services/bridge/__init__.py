"""The bridge: turns events of the timeline into statements."""
