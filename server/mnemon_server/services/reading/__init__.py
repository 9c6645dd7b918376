"""Reading: answers within a budget of bytes, pages, batches, and the filters of callers."""
