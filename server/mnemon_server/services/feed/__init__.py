"""The feed of what happened to records."""
