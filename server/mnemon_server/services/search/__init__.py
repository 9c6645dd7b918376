"""Passages and rankings, shared by all services that search."""
