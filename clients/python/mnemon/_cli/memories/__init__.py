"""The commands for memories."""
