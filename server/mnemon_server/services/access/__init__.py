"""Callers: API keys, tokens, certificates, and the rights of their holders."""
