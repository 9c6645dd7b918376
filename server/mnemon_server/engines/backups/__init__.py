"""Backups of vaults: how they are made, kept, checked and restored."""
