"""The commands for semantic memory."""
