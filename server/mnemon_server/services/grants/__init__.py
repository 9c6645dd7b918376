"""Grants: records that callers share with each other."""
