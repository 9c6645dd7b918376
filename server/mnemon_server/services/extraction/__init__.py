"""Extractors: what makes statements of the messages of conversations."""
