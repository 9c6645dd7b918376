"""Namespaces as text, and their templates with the part of a configuration that they need; the server fills them."""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from mnemon.shared.errors import ConfigurationError

LABELS_MAX = 16
LABEL_BYTES_MAX = 256
LABEL_RULE = f"must be text of 1 to {LABEL_BYTES_MAX} bytes without U+0000, and not blank"
DEFAULT_KEYS = ("org_id", "user_id", "agent_id")
"""The keys of a namespace without a template."""

_BLANK_CATEGORIES = frozenset({"Cc", "Cf", "Zl", "Zp", "Zs"})
_BLANK_CHARACTERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\ufe0e\ufe0f\uffa0")
"""Unicode letters, marks and symbols without a visible glyph."""
_CONFIGURABLE = "configurable"
_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
_SPECIAL = re.compile(r"[\\.]")
_PARTS = re.compile(r"\\([\\.])|(\.)|(\\|[^\\.]+)")
_EXACT_MAX = 1 << 53
"""From here on, not every whole number is a double, as which JSON and protobuf's Struct carry numbers."""


def namespace_text(labels: Iterable[str]) -> str:
    """The labels joined by dots; a dot or a backslash within a label has a backslash before it."""
    return ".".join(_SPECIAL.sub(r"\\\g<0>", label) for label in labels)


def namespace_labels(text: str) -> tuple[str, ...]:
    """The labels in the result of `namespace_text`; a backslash before another character stands for itself."""
    labels = [""]
    for escaped, end, plain in _PARTS.findall(text):
        if end:
            labels.append("")
        else:
            labels[-1] += escaped or plain
    return tuple(labels)


def likely_labels(text: str) -> tuple[str, ...]:
    """The labels that a person may mean by a text without backslashes: a mail address is one."""
    before, at, behind = text.partition("@")
    *first, last = namespace_labels(before)
    if at and first[:1] == ["user"]:
        # The default namespace of the memory tools: the dots before the @ belong to the address, too.
        first, last = first[:1], ".".join((*first[1:], last))
    return (*first, last + at + behind)


def label_of(value: object) -> object:
    """A whole number or a UUID as the text of a label; anything else as it is."""
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT_MAX:
        return str(int(value))
    return str(value) if isinstance(value, int | UUID) and not isinstance(value, bool) else value


def template_labels(namespace: Iterable[str] | str | None) -> tuple[str, ...]:
    """The labels of a template; empty for None. A plain text is one label.

    Raises ConfigurationError if a label is not valid, holds braces without being a key in braces as a whole, or a plain
    text has dots, which separate labels elsewhere.
    """
    if namespace is None:
        return ()
    if isinstance(namespace, str) and "." in namespace:
        meant = dict.fromkeys((likely_labels(namespace), (namespace,)))
        raise _bad(f"dots in a text may separate labels, so write a tuple of labels: {' or '.join(map(repr, meant))}")
    labels = (namespace,) if isinstance(namespace, str) else tuple(map(label_of, namespace))
    if not 1 <= len(labels) <= LABELS_MAX:
        raise _bad(f"a namespace must have 1 to {LABELS_MAX} labels")
    for label in labels:
        _check_label(label)
    return tuple(map(str, labels))


def template_keys(labels: Iterable[str]) -> tuple[str, ...]:
    """The keys that the labels need, in order; without labels those of the default."""
    given = tuple(labels)
    found = (match[1] for label in given if (match := _PLACEHOLDER.fullmatch(label)))
    return tuple(dict.fromkeys(found)) if given else DEFAULT_KEYS


def default_labels(known: Mapping[str, Any]) -> tuple[str, ...]:
    """The namespace without a template, made of the default keys that have a value; empty if none has."""
    org, user, agent = (known.get(key) for key in DEFAULT_KEYS)
    of_user, of_agent = (("user", user) if user else ()), (("agent", agent) if agent else ())
    return ("org", org, *of_agent[1:], *of_user) if org else (*of_user, *of_agent)


def needed_of(config: Mapping[str, Any] | None, keys: Iterable[str]) -> dict[str, Any]:
    """The part of a configuration that is sent, flat or under "configurable": other keys have null.

    Raises ConfigurationError if the value of a key is no text, whole number or UUID. The message never shows values.
    """
    wanted = frozenset(keys)
    if not wanted or config is None:
        return {}
    found = _needed(config, wanted)
    if isinstance(inner := config.get(_CONFIGURABLE), Mapping):
        found[_CONFIGURABLE] = _needed(inner, wanted)
    return found


def is_label(text: str) -> bool:
    """Whether a text can be a label of a namespace."""
    is_sound = bool(text) and "\0" not in text and is_unicode(text) and len(text.encode()) <= LABEL_BYTES_MAX
    return is_sound and not is_blank(text)


def is_blank(text: str) -> bool:
    """Whether a text has only invisible characters; false if it is empty."""
    seen = (unicodedata.category(each) not in _BLANK_CATEGORIES and each not in _BLANK_CHARACTERS for each in text)
    return bool(text) and not any(seen)


def _needed(config: Mapping[Any, Any], wanted: frozenset[str]) -> dict[str, Any]:
    # The names of the others are sent, so that an error can list the keys.
    return {
        key: _text_of(key, value) if key in wanted else None
        for key, value in config.items()
        if isinstance(key, str) and is_unicode(key)
    }


def _text_of(key: str, given: object) -> str:
    value = label_of(given)
    if not isinstance(value, str):
        raise _bad(f"the configuration's {key!r} must be text, not {type(value).__name__}")
    if not is_unicode(value):
        raise _bad(f"the configuration's {key!r} must be valid Unicode")
    return value


def _check_label(label: object) -> None:
    if not isinstance(label, str):
        raise _bad(f"the labels of a namespace must be text, not {type(label).__name__}")
    if _PLACEHOLDER.fullmatch(label):
        return
    shown = repr(label[:80])
    if "{" in label or "}" in label:
        raise _bad(f"the namespace's label {shown} must be one key in braces, or have no braces")
    if not is_label(label):
        raise _bad(f"the namespace's label {shown} {LABEL_RULE}")


def is_unicode(text: str) -> bool:
    """Whether a text can be sent: it has no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _bad(message: str) -> ConfigurationError:
    return ConfigurationError(message, reason="CONFIGURATION")
