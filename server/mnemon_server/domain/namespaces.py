"""Namespaces of facts: sequences of labels, their encoding as one text, and templates that are filled at run time.

The encoding is what is stored. People write namespaces as `namespace_text` of the client does.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from mnemon.shared.namespaces import DEFAULT_KEYS, default_labels, is_blank, label_of
from mnemon.shared.namespaces import LABEL_BYTES_MAX as LABEL_BYTES_MAX
from mnemon.shared.namespaces import LABELS_MAX as LABELS_MAX
from mnemon.shared.namespaces import namespace_labels as namespace_labels
from mnemon.shared.namespaces import namespace_text as namespace_text

from mnemon_server.domain.errors import ConfigurationError, FieldViolation, InvalidArgumentError
from mnemon_server.domain.filters import AllOf, Condition, Expression, Operator
from mnemon_server.domain.validation import BLANK_PROBLEM, refuse, text_violations

NAMESPACE_BYTES_MAX = 1_024
"""Maximum size of the encoding, because indexes hold it as a whole: the labels and one more byte for each label."""

_END = "."
_DOT_WITHIN = "\0"
"""Stands for a dot within a label; no label contains it."""
_AFTER_END = chr(ord(_END) + 1)
_CONFIGURABLE = "configurable"
_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
_KEYS_SHOWN, _KEY_CHARACTERS_SHOWN = 20, 80


class Namespace(tuple[str, ...]):
    """Where a fact is stored: 1 to 16 labels. Equal to a plain tuple of the same labels.

    A label is text of 1 to 256 bytes in UTF-8, and is kept exactly as given, without case folding, Unicode
    normalisation or expansion of braces. Labels are compared by code points.
    """

    __slots__ = ()

    def __new__(cls, labels: Iterable[str]) -> "Namespace":
        """Raises InvalidArgumentError if a label is not valid, or if `labels` is a single string."""
        if isinstance(labels, str):
            raise InvalidArgumentError.of("namespace", f"must be a sequence of labels, such as ({labels[:80]!r},)")
        kept = tuple(labels)
        refuse(namespace_violations(kept))
        return super().__new__(cls, kept)

    @classmethod
    def stored(cls, labels: Iterable[str]) -> "Namespace":
        """A namespace that was checked when it was stored; an earlier version allowed blank labels."""
        return tuple.__new__(cls, labels)

    def is_within(self, prefix: tuple[str, ...]) -> bool:
        """Whether it starts with the labels of `prefix`, so that it equals that namespace or is below it; () is above
        all.
        """
        return self[: len(prefix)] == prefix


def namespace_violations(labels: tuple[object, ...], field: str = "namespace") -> Iterator[FieldViolation]:
    """The violations in the labels of a namespace."""
    if not 1 <= len(labels) <= LABELS_MAX:
        yield FieldViolation(field, f"must have 1 to {LABELS_MAX} labels")
        return
    wrong = [violation for number, label in enumerate(labels) for violation in _violations(label, f"{field}[{number}]")]
    yield from wrong
    if not wrong and sum(len(str(label).encode()) + 1 for label in labels) > NAMESPACE_BYTES_MAX:
        most = NAMESPACE_BYTES_MAX - len(labels)
        yield FieldViolation(field, f"all {len(labels)} labels together must be at most {most:,} bytes of UTF-8")


def encode_label(label: str) -> str:
    """A label within the text of a namespace, without its end."""
    return label.replace(_END, _DOT_WITHIN)


def encode_namespace(labels: Iterable[str]) -> str:
    """The labels as one text, each followed by ".": ("org", "acme") becomes "org.acme.".

    A dot within a label becomes U+0000, so each namespace has its own text, and one namespace is within another if and
    only if its text starts with the other's.
    """
    return "".join(encode_label(label) + _END for label in labels)


def decode_labels(text: str) -> tuple[str, ...]:
    """The labels that `encode_namespace` encoded; they are not checked."""
    return tuple(label.replace(_DOT_WITHIN, _END) for label in text.removesuffix(_END).split(_END))


def decode_namespace(text: str) -> Namespace:
    """Decodes the result of `encode_namespace`. Raises InvalidArgumentError for any other text."""
    if not text.endswith(_END):
        raise InvalidArgumentError.of("namespace", f'must end in "{_END}": each label is followed by a dot')
    labels = decode_labels(text)
    if not all(labels):
        raise InvalidArgumentError.of("namespace", "must have no empty label")
    return Namespace.stored(labels)


def is_exactly(namespace: Namespace, field: str) -> Expression:
    """The condition that a field holds the encoding of exactly this namespace."""
    return Condition(field, Operator.EQ, (encode_namespace(namespace),))


def starts_with(prefix: Namespace, field: str) -> Expression:
    """The condition that a field holds the encoding of this namespace or of one below it.

    It is a range of texts in code point order, which an index can serve.
    """
    first, after = span_of(prefix)
    return AllOf((Condition(field, Operator.GTE, (first,)), Condition(field, Operator.LT, (after,))))


def span_of(prefix: Namespace) -> tuple[str, str]:
    """The first text that encodes this namespace or one below it, and the first text after all of these."""
    first = encode_namespace(prefix)
    return first, first.removesuffix(_END) + _AFTER_END


class NamespaceTemplate:
    """Labels with placeholders that a configuration fills: ("{user_id}", "memories").

    A placeholder is a whole label in braces. Its value is used verbatim; braces in it are not expanded again.
    """

    def __init__(self, labels: tuple[str, ...] | str) -> None:
        """A string counts as a single label. Raises ConfigurationError if a label is not valid or has braces inside."""
        self.labels = (labels,) if isinstance(labels, str) else tuple(labels)
        self._keys = tuple(map(_placeholder, self.labels))
        _configured(tuple("key" if key else label for key, label in zip(self._keys, self.labels, strict=True)))

    def __repr__(self) -> str:
        return f"NamespaceTemplate({self.labels!r})"

    @property
    def keys(self) -> tuple[str, ...]:
        """The configuration keys of its placeholders, in order."""
        return tuple(dict.fromkeys(key for key in self._keys if key))

    def resolve(self, configuration: Mapping[str, Any]) -> Namespace:
        """Fills the placeholders from a configuration, whose keys are at the top level or under "configurable".

        Raises:
            ConfigurationError: a key is missing, or its value is not a valid label. The message never shows values.
        """
        found = _Configuration(configuration)
        return _configured(
            tuple(found.label(key) if key else label for key, label in zip(self._keys, self.labels, strict=True))
        )


def default_namespace(configuration: Mapping[str, Any]) -> Namespace:
    """The namespace if no template is set: `org_id`, `user_id` and `agent_id`, as far as they are given.

    Each given key must have a valid label. An empty or null user would otherwise write to the namespace that the whole
    organisation reads.

    Raises:
        ConfigurationError: none of the keys is given, or the value of one is not a valid label.
    """
    found = _Configuration(configuration)
    labels = default_labels({key: found.optional_label(key) for key in DEFAULT_KEYS})
    if not labels:
        raise ConfigurationError(f"the configuration needs 'org_id', 'user_id' or 'agent_id'; {found.described()}")
    return _configured(labels)


def configured_label(configuration: Mapping[str, Any], key: str) -> str | None:
    """The value of a key, at the top level or under "configurable"; None if it is not there.

    Raises ConfigurationError if it is not a valid label.
    """
    return _Configuration(configuration).optional_label(key)


NamespaceResolver = Callable[[Mapping[str, Any]], Namespace]
"""Returns the namespace of a call from its configuration."""


def namespace_resolver(template: NamespaceTemplate | tuple[str, ...] | str | None = None) -> NamespaceResolver:
    """Returns the resolver: by the template if there is one, otherwise by the default keys."""
    if template is None:
        return default_namespace
    return (template if isinstance(template, NamespaceTemplate) else NamespaceTemplate(template)).resolve


class _Configuration:
    """A caller's configuration: the values at the top level and under "configurable" together."""

    def __init__(self, configuration: Mapping[str, Any]) -> None:
        inner = configuration.get(_CONFIGURABLE)
        self._inner = inner if isinstance(inner, Mapping) else {}
        self._flat = {key: value for key, value in configuration.items() if key != _CONFIGURABLE}

    def label(self, key: str) -> str:
        label = self.optional_label(key)
        if label is None:
            raise ConfigurationError(f"the configuration lacks {key!r}; {self.described()}")
        return label

    def optional_label(self, key: str) -> str | None:
        given = [label_of(part[key]) for part in (self._inner, self._flat) if key in part]
        if not given:
            return None
        # Choosing between two different users could expose one user's facts to the other.
        if any(value != given[0] for value in given):
            raise ConfigurationError(f'the configuration gives {key!r} twice, in "configurable" and next to it')
        for violation in _violations(given[0], key):
            raise ConfigurationError(f"the configuration's {key!r} {violation.description}")
        return str(given[0])

    def described(self) -> str:
        keys = sorted({key[:_KEY_CHARACTERS_SHOWN] for key in (*self._inner, *self._flat) if isinstance(key, str)})
        shown = ", ".join(map(repr, keys[:_KEYS_SHOWN])) + (", ..." if len(keys) > _KEYS_SHOWN else "")
        return f"its keys are {shown}" if keys else "it has no keys"


def _violations(label: object, field: str) -> Iterator[FieldViolation]:
    if not isinstance(label, str):
        yield FieldViolation(field, f"must be text, not {type(label).__name__}")
    elif not label:
        yield FieldViolation(field, "must not be empty")
    elif is_blank(label):
        yield FieldViolation(field, BLANK_PROBLEM)
    else:
        yield from text_violations(label, field, LABEL_BYTES_MAX)


def _placeholder(label: object) -> str | None:
    """The key of a placeholder; None if the label has no braces."""
    if not isinstance(label, str) or not ("{" in label or "}" in label):
        return None
    if match := _PLACEHOLDER.fullmatch(label):
        return match[1]
    # As a plain label, "user-{id}" would put all users into one namespace.
    raise ConfigurationError(f"the namespace's label {label[:80]!r} must be one key in braces, or have no braces")


def _configured(labels: tuple[str, ...]) -> Namespace:
    """A namespace of labels from settings: raises ConfigurationError for invalid ones."""
    try:
        return Namespace(labels)
    except InvalidArgumentError as error:
        raise ConfigurationError(str(error)) from error
