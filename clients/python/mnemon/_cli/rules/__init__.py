"""The commands for merge rules."""
