"""Database files whose pages are encrypted and authenticated: their keys, how they are opened, and access to pages."""
