"""The commands for documents."""
