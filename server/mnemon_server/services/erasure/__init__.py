"""Erases records so that nothing of them is left, and proves it."""
