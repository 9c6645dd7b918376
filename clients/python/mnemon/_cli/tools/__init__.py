"""The commands for tools."""
