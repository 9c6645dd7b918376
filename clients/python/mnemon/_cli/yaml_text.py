"""Reads YAML; a module of its own, because the command works without pyyaml."""

from typing import Any

import yaml


class Loader(yaml.SafeLoader):  # type: ignore[misc]  # it ships no types
    """Plain values only. A duplicate key in an object is an error; yaml would drop the first one."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:  # noqa: FBT001 - the library's signature
        """The object of a node."""
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if repeated := next((key for key in keys if keys.count(key) > 1), None):
            line = node.start_mark.line + 1
            raise ValueError(f"the key {repeated!r} appears twice in the object of line {line}")
        return super().construct_mapping(node, deep)


def parsed(content: bytes, loads: type[Loader] = Loader) -> Any:
    """The value of the YAML. Raises ValueError, with the line, if it is not valid."""
    try:
        loader = loads(content)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ValueError(f"{line}{error.problem}") from error
    except yaml.YAMLError as error:
        raise ValueError(str(error).splitlines()[0]) from error
