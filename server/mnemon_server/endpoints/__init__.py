"""Calls of OpenAI-compatible endpoints that an operator has configured."""
