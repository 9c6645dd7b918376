"""Namespaces that clients send."""

from collections.abc import Sequence
from functools import lru_cache

from mnemon_server.domain.errors import InvalidArgumentError
from mnemon_server.domain.namespaces import Namespace, namespace_violations
from mnemon_server.transport.convert.shared.reader import Reader

# The facts of a stream share few namespaces, and a new one is checked label by label.
_namespace = lru_cache(maxsize=1024)(Namespace)
_SOME_NAMESPACE = Namespace(("some",))


def read_namespace(reader: Reader, field: str, labels: Sequence[str]) -> Namespace:
    """The namespace of these labels; another one if they are invalid, and the reader has noted why."""
    given = tuple(labels)
    try:
        return _namespace(given)
    except InvalidArgumentError:
        reader.violations += namespace_violations(given, field)
        return _SOME_NAMESPACE
