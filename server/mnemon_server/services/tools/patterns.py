"""Regular expressions of an operator's schema, matched in time linear in the text, whatever the expression.

A model writes the text, and `re` would let it choose one on which an innocent expression takes hours. RE2 knows neither
look-around nor references to groups, which is what makes it safe.
"""

import re
from functools import lru_cache
from typing import Any

import re2

_ESCAPE = re.compile(
    r"\\(?:u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|u(?P<four>[0-9a-fA-F]{4})|u\{(?P<any>[0-9a-fA-F]{1,6})\}|c(?P<control>[A-Za-z])|.)",
    re.DOTALL,
)


class UnsupportedPatternError(ValueError):
    """RE2 does not take the expression; the message says why."""


def matches(pattern: str, text: str) -> bool:
    """Whether a regular expression of JSON schema matches anywhere in a text. Raises UnsupportedPatternError."""
    return compiled(pattern).search(text) is not None


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> Any:
    """The expression, ready to search with. Raises UnsupportedPatternError."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(_ESCAPE.sub(_escape_of_re2, pattern), options)
    except (re2.error, UnicodeError) as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error, re2.error) else "it is not Unicode"
        raise UnsupportedPatternError(f"the pattern {pattern[:120]!r} cannot be used here: {reason}") from error


def _escape_of_re2(escape: re.Match[str]) -> str:
    """An escape of ECMA-262 as RE2 writes it; one that both know stays as it is."""
    if escape["high"]:
        code = 0x10000 + ((int(escape["high"], 16) & 0x3FF) << 10) + (int(escape["low"], 16) & 0x3FF)
        return f"\\x{{{code:x}}}"
    if digits := escape["four"] or escape["any"]:
        return f"\\x{{{digits}}}"
    return f"\\x{ord(escape['control']) % 32:02x}" if escape["control"] else escape[0]
