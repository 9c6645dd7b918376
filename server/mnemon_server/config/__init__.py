"""The settings: their definitions, their sources and their validation."""
