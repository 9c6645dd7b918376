"""What the conversions of all nouns share: reading field by field, filters, JSON, and how much of it may be."""
