"""Fifty namespaces that a careless comparison confuses."""

COLLIDING: tuple[tuple[str, ...], ...] = (
    # The text of one is a prefix of another's.
    ("tenant",),
    ("tenant", "acme"),
    ("tenant", "acme-corp"),
    ("tenant", "acme", "corp"),
    ("tenant", "acm"),
    ("tenant", "acme "),
    (" tenant", "acme"),
    ("tenantacme",),
    ("tenant", "acme", "acme"),
    ("ten", "ant", "acme"),
    # Split in other places, but equal when joined.
    ("a", "bc"),
    ("ab", "c"),
    ("abc",),
    ("a", "b", "c"),
    # Separators of paths, addresses, keys and encodings.
    ("tenant/acme",),
    ("tenant:acme",),
    ("tenant|acme",),
    ("tenant,acme",),
    ("tenant\x1facme",),
    ("tenant\\", "acme"),
    ('tenant","acme',),
    ('["tenant","acme"]',),
    ("tenant%2Eacme",),
    ("tenant/",),
    ("tenant", "/acme"),
    # Looks like a dot, but is not.
    ("tenant\u2024acme",),
    ("tenant\uff0eacme",),
    ("tenant\u3002acme",),
    ("tenant\u00b7acme",),
    # Braces: the value of a placeholder is literal.
    ("{tenant}", "acme"),
    ("{tenant",),
    ("tenant}",),
    ("{}",),
    ("{{tenant}}", "acme"),
    # Case, and characters that fold to the same case.
    ("TENANT", "ACME"),
    ("Tenant", "acme"),
    ("stra\u00dfe",),
    ("strasse",),
    ("\u0131d",),
    ("id",),
    # Unicode: composed and decomposed, compatibility forms, other scripts, zero-width marks.
    ("caf\u00e9",),
    ("cafe\u0301",),
    ("tenant", "\u0430cme"),
    ("tenant", "\uff41cme"),
    ("tenant", "acme\u200b"),
    ("tenant", "\ufeffacme"),
    ("\u212b",),
    ("\u00c5",),
    # Wildcards of SQL and of file names.
    ("tenant", "acm_"),
    ("tenant", "%"),
)
