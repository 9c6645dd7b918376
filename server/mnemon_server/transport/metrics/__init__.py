"""What monitoring systems read: figures of calls, and the page with all of them."""
