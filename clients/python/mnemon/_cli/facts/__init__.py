"""The commands for facts."""
