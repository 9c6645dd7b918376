"""The commands for the timeline and the bridge."""
