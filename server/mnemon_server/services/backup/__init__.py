"""Backups of a vault while it is being used."""
