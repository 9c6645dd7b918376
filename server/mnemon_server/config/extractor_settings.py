"""The settings of the extraction from conversations: a part of the table of settings."""

from dataclasses import dataclass
from pathlib import Path

from mnemon_server.config.values import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractorSettings:
    """Who extracts statements from conversations, and how. See `Settings`."""

    extract_endpoint: str = setting(
        "",
        "URL of an OpenAI-compatible endpoint that extracts statements from conversations, such as "
        "http://localhost:11434/v1; messages are sent there if the bridge's policy has the mode model.",
    )
    extract_model: str = setting("", "Chat model that this endpoint runs.")
    extract_key_file: Path | None = setting(None, "File with the key of this endpoint, which other users cannot read.")
    extract_prompt_file: Path | None = setting(
        None, "File with the instructions for the model, instead of the server's own."
    )
    extract_answer_format: str = setting(
        "json_schema",
        "How the endpoint is asked for JSON: by a schema, or as any object for endpoints that take no schema.",
        choices=("json_schema", "json_object"),
    )
    extract_service: str = setting(
        "",
        "HOST:PORT of an ExtractorService that extracts statements from conversations; messages are sent there if "
        "the bridge's policy has the mode service.",
    )
    extract_service_tls: bool = setting(False, "Use TLS for this service.")
    extract_service_key_file: Path | None = setting(
        None,
        "File with the key for this service, which other users cannot read; it is sent as a bearer token, over TLS "
        "or on loopback alone.",
    )
    extract_timeout_s: float = setting(120.0, "Time for a call of the endpoint or the service.", at_least=0.001)
    extract_quiet_s: float = setting(
        30.0, "Time without a further message after which the messages of a conversation are extracted.", at_least=0
    )
    extract_messages_max: int = setting(
        20, "Maximum number of messages that are extracted together.", at_least=1, at_most=200
    )
    extract_tokens_max: int = setting(
        4_000, "Estimated maximum size of messages that are extracted together, in tokens.", at_least=1
    )
    extract_earlier_max: int = setting(6, "Number of earlier messages that are sent along.", at_least=0, at_most=50)
    extract_known_max: int = setting(
        10, "Maximum number of known statements that are sent along.", at_least=0, at_most=100
    )
    extract_calls_max: int = setting(4, "Maximum number of concurrent calls.", at_least=1, at_most=64)
    extract_calls_per_hour: float = setting(
        600.0, "Maximum number of calls in an hour, on average, for all tenants.", at_least=1
    )
    extract_tokens_per_hour: float = setting(
        1_000_000.0, "Maximum number of tokens in an hour, on average, for all tenants.", at_least=1
    )
    extract_attempts_max: int = setting(
        5, "Number of refused answers after which messages are given up.", at_least=1, at_most=100
    )
    extract_retry_s: float = setting(
        10.0, "Time until the first retry; it doubles with each further one, up to ten minutes.", at_least=0.001
    )
