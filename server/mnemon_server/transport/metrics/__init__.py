"""Metrics: figures of calls, and the page with all of them."""
