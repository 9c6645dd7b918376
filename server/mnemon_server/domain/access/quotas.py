"""How much a tenant, or a caller, may use."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from mnemon_server.domain.errors import FieldViolation, InvalidArgumentError


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """The most that a tenant, or one caller, may use. What is None is not limited.

    The settings give those of every tenant and those of every caller. A tenant may have quotas of its own, of which
    those that are None are the ones of the settings: `own.over(default)`. Records and disk belong to a vault, and
    embedding is done for one, so they are quotas of tenants alone.
    """

    calls_per_second: float | None = None
    """Calls that begin, on average: single ones and streams."""
    calls_burst: int | None = None
    """Calls that may begin at once after a pause; None: those of a second."""
    concurrent_calls: int | None = None
    """Single calls that are not answered yet."""
    open_streams: int | None = None
    """Streams that are open at once."""
    mib_in_flight: float | None = None
    """MiB of memory for requests that are being answered, and for answers on their way."""
    records: int | None = None
    """Records of all kinds that are stored, events included."""
    disk_mib: float | None = None
    """MiB of the vault's files."""
    embedding_seconds_per_minute: float | None = None
    """Seconds for which the embedding model runs, in a minute."""

    def over(self, default: "Quotas") -> "Quotas":
        """These, and those of `default` where these are None."""
        own = {name: value for name in NAMES if (value := getattr(self, name)) is not None}
        return Quotas(**{**default.as_dict(), **own})

    def as_dict(self) -> dict[str, float]:
        """The limited quantities, by name, in the order of the fields."""
        return {name: value for name in NAMES if (value := getattr(self, name)) is not None}


NAMES = tuple(field.name for field in fields(Quotas))
OF_TENANTS_ONLY = ("records", "disk_mib", "embedding_seconds_per_minute")
UNLIMITED = Quotas()
WHOLE = ("calls_burst", "concurrent_calls", "open_streams", "records")
LIMIT_MAX = 1e15


def quota_violations(quotas: Quotas, field: str = "quotas") -> Iterable[FieldViolation]:
    """Violations in quotas; `field` is the name of the field that holds them."""
    for name, value in quotas.as_dict().items():
        if not (math.isfinite(value) and 0 < value <= LIMIT_MAX) and not (name == "records" and value == 0):
            yield FieldViolation(f"{field}.{name}", "must be a positive number; leave it out for no quota of its own")
        elif name in WHOLE and value != int(value):
            yield FieldViolation(f"{field}.{name}", "must be a whole number")


def parse_quotas(texts: Sequence[str], field: str = "quotas", names: Sequence[str] = NAMES) -> Quotas:
    """Quotas as people write them, such as `["calls_per_second=50", "open_streams=20"]`.

    Raises:
        InvalidArgumentError: a text is not NAME=NUMBER with one of these names, or the number is not valid.
    """
    values: dict[str, float] = {}
    for text in texts:
        name, _, number = text.partition("=")
        if name.strip() not in names:
            raise InvalidArgumentError.of(field, f"{text!r} must be NAME=NUMBER; the names are {', '.join(names)}")
        try:
            value = float(number)
            values[name.strip()] = int(value) if name.strip() in WHOLE and value.is_integer() else value
        except ValueError:
            raise InvalidArgumentError.of(field, f"{text!r} must be NAME=NUMBER") from None
    quotas = Quotas(**values)  # type: ignore[arg-type] # a number that should be whole is checked next
    if violations := list(quota_violations(quotas, field)):
        raise InvalidArgumentError(violations)
    return quotas
