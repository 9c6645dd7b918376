"""The synchronous client, one module per noun."""
