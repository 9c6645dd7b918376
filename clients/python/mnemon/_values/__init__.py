"""What callers give and get, one module per noun."""
