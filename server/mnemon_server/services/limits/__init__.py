"""Limits: what tenants and callers use, budgets of slots and memory, and the turns of those that wait."""
