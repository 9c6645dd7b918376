"""Matches the regular expressions of an operator's schema, always in time linear in the length of the text.

A model writes the text, and with `re` some texts make even a harmless-looking expression run for hours. RE2 is safe,
because it supports neither look-around nor references to groups.
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
    """RE2 does not support the expression; the message says why."""


def matches(pattern: str, text: str) -> bool:
    """Whether a regular expression of a JSON schema matches anywhere in a text. Raises UnsupportedPatternError."""
    return compiled(pattern).search(text) is not None


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> Any:
    """The compiled expression. Raises UnsupportedPatternError."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(_ESCAPE.sub(_escape_of_re2, pattern), options)
    except (re2.error, UnicodeError) as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error, re2.error) else "it is not Unicode"
        raise UnsupportedPatternError(f"the pattern {pattern[:120]!r} cannot be used here: {reason}") from error


def _escape_of_re2(escape: re.Match[str]) -> str:
    """Translates an escape of ECMA-262 to the syntax of RE2; one that both share stays as it is."""
    if escape["high"]:
        code = 0x10000 + ((int(escape["high"], 16) & 0x3FF) << 10) + (int(escape["low"], 16) & 0x3FF)
        return f"\\x{{{code:x}}}"
    if digits := escape["four"] or escape["any"]:
        return f"\\x{{{digits}}}"
    return f"\\x{ord(escape['control']) % 32:02x}" if escape["control"] else escape[0]
