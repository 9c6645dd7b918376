"""Conflicts between statements: how they are found, arbitrated, merged and taken back."""
