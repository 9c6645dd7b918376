"""Fills the table of settings from defaults, a TOML file, the environment and flags, in this order."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from mnemon_server.config.address import Address
from mnemon_server.config.settings import SETTINGS, Settings
from mnemon_server.config.values import VARIABLE_PREFIX, Texts, parse_value
from mnemon_server.domain.collections import index_name_problem
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.domain.namespaces import NamespaceTemplate

CONFIG_FILE_VARIABLE = "MNEMON_CONFIG"
_CLIENT_VARIABLES = ("MNEMON_ADDRESS", "MNEMON_API_KEY", "MNEMON_PROFILE")
"""Variables of the Python client and the command `mnemon`, which are often set where a server starts."""
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#\s]+")
_CHROMA_HOST = re.compile(r"https?://[^/?#\s]+(/[^?#\s]*)?|[^/?#\s:]+|\[?(?=[^:]*:[^:]*:)[0-9a-fA-F:.]+\]?")


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings, with the origin of each value: default, file PATH, environment NAME, or flag --NAME."""

    settings: Settings
    origins: Mapping[str, str]
    unknown_variables: tuple[str, ...] = ()
    """Variables that look like settings but are not. No error, because Kubernetes creates some for a service
    `mnemon`.
    """


def load_settings(
    *, file: Path | None = None, environ: Mapping[str, str], flags: Mapping[str, Any] | None = None
) -> LoadedSettings:
    """Fills the table: default, then the TOML file, then the environment, then flags.

    If `file` is None, the file named by MNEMON_CONFIG is read, if that is set. Flags that are None count as not given.

    Raises:
        ConfigurationError: an unknown key in the file, an invalid value, or settings that contradict each other.
    """
    values: dict[str, Any] = {}
    origins = dict.fromkeys(SETTINGS, "default")
    file = file or (Path(environ[CONFIG_FILE_VARIABLE]) if environ.get(CONFIG_FILE_VARIABLE) else None)
    for name, raw, origin in [*_from_file(file), *_from_environment(environ), *_from_flags(flags or {})]:
        values[name] = parse_value(SETTINGS[name], raw, origin)
        origins[name] = origin
    settings = Settings(**values)
    _check_together(settings)
    return LoadedSettings(settings, origins, _unknown_variables(environ))


def settings_from_arguments(arguments: Mapping[str, Any]) -> Settings:
    """Settings from a program's arguments, with defaults for the rest. None counts as not given.

    Raises:
        ConfigurationError: an unknown name, an invalid value, or settings that contradict each other.
    """
    if unknown := [name for name in arguments if name not in SETTINGS]:
        raise ConfigurationError(f"{unknown[0]!r} is not a setting; {_meant(unknown[0])}")
    given = {name: raw for name, raw in arguments.items() if raw is not None}
    settings = Settings(**{name: parse_value(SETTINGS[name], raw, "argument") for name, raw in given.items()})
    _check_together(settings)
    return settings


def _from_file(file: Path | None) -> Iterator[tuple[str, Any, str]]:
    if file is None:
        return
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"the configuration file {file} cannot be read: {error}") from error
    for name, raw in content.items():
        if name not in SETTINGS:
            raise ConfigurationError(f"{name!r} in the file {file} is not a setting; {_meant(name)}")
        yield name, raw, f"file {file}"


def _from_environment(environ: Mapping[str, str]) -> Iterator[tuple[str, Any, str]]:
    for row in SETTINGS.values():
        # Compose and shells use an empty variable for "not set".
        variable = next((name for name in row.variables if environ.get(name)), None)
        if variable is not None:
            yield row.name, environ[variable], f"environment {variable}"


def _from_flags(flags: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    for name, raw in flags.items():
        if raw is not None:
            yield name, raw, f"flag {SETTINGS[name].flag}"


def _meant(name: str) -> str:
    """The end of a sentence about a name that is no setting: the one that may be meant, otherwise all."""
    close = get_close_matches(name.lower().replace("-", "_"), SETTINGS, n=1)
    return f"did you mean {close[0]!r}?" if close else f"the settings are: {', '.join(SETTINGS)}"


def hint_at_variable(variable: str) -> str:
    """A hint at the setting that a misspelt variable may mean, as the end of a sentence; empty if nothing is close."""
    known = [name for row in SETTINGS.values() for name in row.variables]
    # Kubernetes sets variables such as MNEMON_SERVICE_HOST, which are meant as they are.
    close = get_close_matches(variable, known, n=1, cutoff=0.85)
    return f"; did you mean {close[0]}?" if close else ""


def _unknown_variables(environ: Mapping[str, str]) -> tuple[str, ...]:
    known = {CONFIG_FILE_VARIABLE, *_CLIENT_VARIABLES, *(name for row in SETTINGS.values() for name in row.variables)}
    return tuple(sorted(name for name in environ if name.startswith(VARIABLE_PREFIX) and name not in known))


def _check_together(settings: Settings) -> None:
    if (settings.tls_certificate is None) != (settings.tls_key is None):
        raise ConfigurationError("tls_certificate and tls_key belong together: set both, or neither")
    if settings.tls_client_ca is not None and settings.tls_certificate is None:
        raise ConfigurationError("tls_client_ca needs tls_certificate and tls_key")
    if settings.embedding_endpoint_key_file is not None and not settings.embedding_endpoint:
        raise ConfigurationError("embedding_endpoint_key_file needs embedding_endpoint, where the key is sent")
    _check_master_keys(settings)
    _check_tool_namespace(settings.tool_namespace)
    _check_origins(settings)
    _check_chroma(settings)
    addresses = {"listen": Address.parse(settings.listen)}
    if settings.http_listen:
        addresses["http_listen"] = Address.parse(settings.http_listen)
    _check_authentication(settings, addresses)
    if settings.metrics_listen:
        addresses["metrics_listen"] = Address.parse(settings.metrics_listen)
    for address in addresses.values():
        if not (address.is_local or settings.tls_certificate or settings.insecure):
            raise ConfigurationError(
                f"{address} can be reached from other machines: set tls_certificate and tls_key to serve TLS, "
                "or set --insecure (MNEMON_INSECURE=true) if the network is trusted"
            )


def _check_master_keys(settings: Settings) -> None:
    names = [name for name in ("master_key_file", "master_key_command", "master_key") if getattr(settings, name)]
    if len(names) > 1:
        raise ConfigurationError(f"{' and '.join(names)} are set, and both give the master key: set only one")


def _check_origins(settings: Settings) -> None:
    if settings.http_origins and not settings.http_listen:
        raise ConfigurationError("http_origins needs http_listen, the address that scripts call")
    for origin in settings.http_origins:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise ConfigurationError(
                f"setting http_origins: {origin!r} is not an origin; one is like https://app.example, without a path"
            )


def _check_chroma(settings: Settings) -> None:
    if not settings.chroma_host:
        return
    backends = {"collection": settings.knowledge_store_backend, "memory_collection": settings.memory_backend}
    names = [name for name, backend in backends.items() if backend == "chromadb"]
    for name in names:
        if problem := index_name_problem(getattr(settings, name)):
            raise ConfigurationError(f"setting {name}: {getattr(settings, name)!r} is invalid; it {problem}")
    if len(names) > 1 and settings.collection == settings.memory_collection:
        raise ConfigurationError("collection and memory_collection are the same: give each a name of its own")
    if not _CHROMA_HOST.fullmatch(settings.chroma_host):
        raise ConfigurationError(
            f"setting chroma_host: {settings.chroma_host!r} is invalid; it must be the name or address of a host, "
            "whose port is chroma_port, or a URL such as https://chroma.example:8000"
        )


def _check_authentication(settings: Settings, addresses: Mapping[str, Address]) -> None:
    kinds = settings.authentication
    named = {"jwt", "mtls"} & set(kinds)
    if named and settings.identity_file is None:
        raise ConfigurationError(
            f"authentication {' and '.join(sorted(named))} needs identity_file, which says who is trusted"
        )
    if settings.identity_file is not None and not named:
        raise ConfigurationError("identity_file needs authentication to contain jwt or mtls")
    if "mtls" in kinds and settings.tls_client_ca is None:
        raise ConfigurationError("authentication mtls needs tls_client_ca, whose certificates are accepted")
    for name, address in addresses.items():
        if "unix" in kinds and not address.socket_path:
            raise ConfigurationError(
                f"authentication unix needs {name} to be unix:PATH, a socket that only you may open"
            )


def _check_tool_namespace(labels: Texts) -> None:
    if not labels:
        return
    try:
        NamespaceTemplate(labels)
    except ConfigurationError as error:
        raise ConfigurationError(f"setting tool_namespace: {error}") from error
