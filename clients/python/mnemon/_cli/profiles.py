"""Profiles: named connections in a file, so that no secret has to be in a command or in the environment.

[work]
address = "memory.example:50051"
tls = true
api_key = "mn_1f3a5c7e9b0d2f46_..."
"""

import os
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PROFILE_VARIABLE = "MNEMON_PROFILE"
_SECRETS = ("api_key", "token")
_PATHS = ("ca_file", "certificate_file", "key_file")
_KINDS: Mapping[str, type | tuple[type, ...]] = {
    "address": str,
    "tls": bool,
    "insecure": bool,
    **dict.fromkeys((*_PATHS, *_SECRETS), str),
    "timeout": (int, float),
}


class ProfileError(Exception):
    """A profile cannot be used. The message contains no secret."""


def profiles_file() -> Path:
    """Where the profiles are: `mnemon/profiles.toml` in the user's folder for configuration."""
    from platformdirs import user_config_path

    return user_config_path("mnemon") / "profiles.toml"


def read_profile(name: str) -> dict[str, Any]:
    """The arguments of a client that the profile of this name gives. Paths are looked for beside the file.

    Raises:
        ProfileError: the file or the profile is missing or invalid, or others may read a secret in it.
    """
    path = profiles_file()
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            profiles = tomllib.load(file)
    except OSError as error:
        raise ProfileError(f"the profiles {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        # Without what the parser says, which may repeat a secret.
        raise ProfileError(f"the profiles {path} are not TOML") from error
    if _is_open(mode) and any(_has_secret(profile) for profile in profiles.values()):
        raise ProfileError(f"the profiles {path} hold secrets, and other users may read them; run `chmod 600 {path}`")
    profile = profiles.get(name)
    if not isinstance(profile, dict):
        raise ProfileError(f"{path} has no profile {name!r}; it has {', '.join(map(repr, profiles)) or 'none'}")
    _check(profile, f"the profile {name!r} in {path}")
    paths = {key: str(path.parent / Path(profile[key]).expanduser()) for key in _PATHS if key in profile}
    return {**profile, **paths}


def _is_open(mode: int) -> bool:
    return os.name == "posix" and bool(stat.S_IMODE(mode) & 0o077)


def _has_secret(profile: object) -> bool:
    return isinstance(profile, dict) and any(name in profile for name in _SECRETS)


def _check(profile: Mapping[str, Any], named: str) -> None:
    for key, value in profile.items():
        if key not in _KINDS:
            raise ProfileError(f"{key!r} is not a key of {named}; the keys are {', '.join(_KINDS)}")
        kind = _KINDS[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ProfileError(f"{key} of {named} must be {_SHOWN[kind]}")


_SHOWN: Mapping[object, str] = {str: "a text", bool: "true or false", (int, float): "a number"}
