"""Assembles a tenant's vault: its records, the services on top of them, and the background tasks."""
