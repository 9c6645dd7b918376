"""Parts of all conversions: reading field by field, filters, JSON, and its limits."""
