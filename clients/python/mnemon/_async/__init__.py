"""The asynchronous client, one module per noun."""
