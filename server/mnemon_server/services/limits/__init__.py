"""Limits: what tenants and callers use, budgets of slots and memory, and the order of waiting streams."""
