"""Fifty namespaces that a careless comparison takes for one another."""

COLLIDING: tuple[tuple[str, ...], ...] = (
    # One's text is the beginning of another's.
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
    # Cut in other places, the labels read the same when joined.
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
    # Looks like a dot, and is none.
    ("tenant\u2024acme",),
    ("tenant\uff0eacme",),
    ("tenant\u3002acme",),
    ("tenant\u00b7acme",),
    # Braces: what fills a placeholder stands for itself.
    ("{tenant}", "acme"),
    ("{tenant",),
    ("tenant}",),
    ("{}",),
    ("{{tenant}}", "acme"),
    # Case, and what folds to the same case.
    ("TENANT", "ACME"),
    ("Tenant", "acme"),
    ("stra\u00dfe",),
    ("strasse",),
    ("\u0131d",),
    ("id",),
    # Unicode: composed and decomposed, compatibility forms, other scripts, marks without width.
    ("caf\u00e9",),
    ("cafe\u0301",),
    ("tenant", "\u0430cme"),
    ("tenant", "\uff41cme"),
    ("tenant", "acme\u200b"),
    ("tenant", "\ufeffacme"),
    ("\u212b",),
    ("\u00c5",),
    # What patterns of SQL and of file names match.
    ("tenant", "acm_"),
    ("tenant", "%"),
)
