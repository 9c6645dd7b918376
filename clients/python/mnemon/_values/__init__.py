"""The values that callers give and get, one module per noun."""
