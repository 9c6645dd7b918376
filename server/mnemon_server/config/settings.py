"""The settings of the server, as one table."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mnemon_server.config.folders import user_data_folder
from mnemon_server.config.values import Setting, Texts, Verbatim, setting, settings_in

MEMORY_ACTIONS = ("create", "update", "delete")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting with its default. Environment variable and flag are derived from its name; see `SETTINGS`."""

    listen: str = setting(
        "127.0.0.1:50051", "Address to serve on: HOST:PORT, [IPv6]:PORT or unix:PATH. Port 0 selects a free port."
    )
    http_listen: str = setting(
        "", "Address to serve HTTP on, for curl, browsers and Connect, in the same forms; empty serves gRPC alone."
    )
    http_origins: Texts = setting(
        (), "Origins whose scripts may call over HTTP from a browser, such as https://app.example; * allows all."
    )
    metrics_listen: str = setting("", "Address to serve /metrics on over HTTP, for Prometheus; empty measures nothing.")
    insecure: bool = setting(False, "Serve without TLS on an address that other machines can reach.")
    tls_certificate: Path | None = setting(
        None, "PEM file with the server's certificate chain. Reloaded when it changes."
    )
    tls_key: Path | None = setting(None, "PEM file with the certificate's private key.")
    tls_client_ca: Path | None = setting(None, "PEM file with authorities; clients need a certificate from one.")
    authentication: Texts = setting(
        (),
        "What callers may show to say who they are; empty lets everybody who reaches the address call.",
        choices=("api_key", "jwt", "mtls", "unix"),
    )
    identity_file: Path | None = setting(
        None,
        "TOML file that says whose tokens and client certificates are trusted, and for which tenant. Reloaded when "
        "it changes.",
    )
    audit_log: str = setting(
        "writes",
        "Which calls the audit log gets, if authentication is on: those that write, administer or are refused; "
        "all; or none.",
        choices=("writes", "all", "off"),
    )
    data_dir: Path = setting(user_data_folder, "Folder for all data; by default `mnemon` in the user's data folder.")
    master_key_file: Path | None = setting(
        None,
        "File with the master key, 64 hexadecimal digits, with which the keys of vaults are encrypted; further "
        "lines hold former ones.",
    )
    master_key_command: str = setting(
        "", "Shell command that prints the content of such a file, for instance by asking a KMS."
    )
    master_key: Verbatim = setting(
        Verbatim(""), "The content of such a file, without a flag, which other users could see.", secret=True
    )
    backup_dir: Path | None = setting(None, "Folder in which CreateBackup keeps backups that are given a name.")
    knowledge_store_backend: str = setting(
        "chromadb",
        "Index for the vectors of documents. chromadb needs chroma_host; in_memory keeps no record after the end "
        "of the process.",
        choices=("chromadb", "local", "in_memory"),
        also="KNOWLEDGE_STORE_BACKEND",
    )
    chroma_host: str = setting(
        "", "Host of a Chroma server; if empty, the local index serves.", also="KNOWLEDGE_STORE_HOST"
    )
    chroma_port: int = setting(
        8000, "Port of the Chroma server.", at_least=1, at_most=65_535, also="KNOWLEDGE_STORE_PORT"
    )
    chroma_ssl: bool = setting(False, "Use TLS for the Chroma server.")
    collection: str = setting("knowledge", "Name of the collection for documents.", also="KNOWLEDGE_STORE_COLLECTION")
    memory_backend: str = setting(
        "local", "Index for the vectors of memories; chromadb uses the settings above.", choices=("local", "chromadb")
    )
    memory_collection: str = setting("memories", "Name of the collection for memories, if chromadb indexes them.")
    reinforceable_half_life_h: float = setting(
        720.0, "Hours without reinforcement until a reinforceable memory has confidence 0.5.", at_least=0.001
    )
    reinforceable_curve: str = setting(
        "exponential", "Decay of reinforceable memories.", choices=("exponential", "linear")
    )
    contextual_half_life_h: float = setting(
        168.0, "Hours after which a contextual memory has confidence 0.5.", at_least=0.001
    )
    contextual_curve: str = setting("exponential", "Decay of contextual memories.", choices=("exponential", "linear"))
    history_versions: int = setting(
        20, "Earlier versions kept of each record; 0 keeps no history.", at_least=0, at_most=1_000
    )
    history_days: float = setting(90.0, "Days for which a version is kept; 0 keeps none.", at_least=0, at_most=36_500)
    rules_file: Path | None = setting(
        None, "JSON or YAML file with merge rules; they replace rules of the same name whenever a vault is opened."
    )
    semantic_capacity: int = setting(
        1_000_000, "Maximum number of statements in semantic memory; further ones are refused.", at_least=1
    )
    semantic_write_latency_target_ms: float = setting(
        1000.0,
        "Target time of a save in semantic memory, in milliseconds; above that, saves are limited.",
        at_least=0.001,
    )
    timeline_retention_days: float | None = setting(
        None, "Days for which events are kept; auto keeps them forever.", at_least=0.001, at_most=1_000_000
    )
    timeline_prune_share_max: float = setting(
        0.5,
        "Maximum share of the timeline that the retention removes at once; above that, it stops and warns.",
        at_least=0,
        at_most=1,
    )
    timeline_prune_guard_min_events: int = setting(
        10, "Minimum number of events for that limit to apply; with fewer, all may be removed.", at_least=1
    )
    timeline_segment_max_mib: int = setting(
        64, "Size at which a new segment of the timeline begins.", at_least=1, at_most=1024
    )
    timeline_segment_max_events: int = setting(
        100_000, "Maximum number of events in a segment.", at_least=1, at_most=10_000_000
    )
    timeline_segment_max_age_s: float = setting(3600.0, "Age at which a new segment begins.", at_least=0.001)
    timeline_scrub_interval_h: float = setting(
        24.0, "Hours between two checks of all data in the timeline.", at_least=0.001
    )
    timeline_write_latency_target_ms: float = setting(
        1000.0, "Target time for recording an event, in milliseconds; above that, a warning is raised.", at_least=0.001
    )
    timeline_embeddings: bool = setting(True, "Compute vectors of events, so that they can be searched by meaning.")
    bridge_enabled: bool = setting(True, "Save events of the timeline as statements according to the routing policy.")
    judge_endpoint: str = setting(
        "",
        "URL of an OpenAI-compatible endpoint that judges how statements relate, such as http://localhost:11434/v1;"
        " statements are sent there, if their rule evaluates the signal relation, as the default rule does.",
    )
    judge_model: str = setting("", "Chat model that the judge's endpoint runs.")
    judge_key_file: Path | None = setting(
        None, "File with the key of the judge's endpoint, which other users cannot read."
    )
    judge_timeout_s: float = setting(5.0, "Time for which a save waits for the judge.", at_least=0.001)
    judge_pairs_max: int = setting(
        8, "Maximum number of stored statements about which a save asks the judge.", at_least=1, at_most=32
    )
    judge_calls_per_minute: float = setting(
        60.0, "Maximum number of calls of the judge in a minute, on average.", at_least=1
    )
    tokenizer_dir: Path | None = setting(None, "Folder with OpenAI's o200k_base.tiktoken or cl100k_base.tiktoken.")
    tools_file: Path | None = setting(
        None, "TOML file with further tools for language models, and the endpoints that run them."
    )
    tool_endpoints_allowed: Texts = setting(
        (), "Hosts, or HOST:PORT, that tools in that file may call; no others are called."
    )
    tool_calls_max: int = setting(
        64, "Maximum number of concurrent calls of each of these tools; further ones are refused.", at_least=1
    )
    tool_actions_permitted: Texts = setting(
        MEMORY_ACTIONS, "Actions that the tool manage_memory may perform.", choices=MEMORY_ACTIONS
    )
    tool_result_kib: int = setting(
        32, "Most KiB of text from search_memory; the rest is cut, and marked.", at_least=1, at_most=3_072
    )
    tool_namespace: Texts = setting(
        (),
        "Labels of the memory tools' namespace for calls that name none; a label in braces, such as {user_id}, is "
        "filled from the call's configuration.",
    )
    change_retention_days: float = setting(7.0, "Days for which changes are kept for watchers.", at_least=0.001)
    change_retention_max: int = setting(
        1_000_000, "Maximum number of kept changes; the oldest are removed first.", at_least=1
    )
    watch_heartbeat_s: float = setting(15.0, "Default interval between heartbeats of a watch.", at_least=5, at_most=60)
    vaults_open_max: int = setting(
        64, "Maximum number of open vaults; the least recently used one is closed first.", at_least=1
    )
    vault_idle_s: float = setting(600.0, "Time after which an unused vault is closed.", at_least=0.001)
    graph_vectors_min: int = setting(
        20_000, "Number of vectors from which an index has a graph or is quantized.", at_least=1
    )
    embedding_model: str = setting(
        "sentence-transformers/all-MiniLM-L6-v2",
        "Embedding model: the default reads English, multilingual a hundred languages; a path is a folder with "
        "model.onnx and tokenizer.json; hashing needs no weights but ignores meaning (for tests).",
        also="KNOWLEDGE_STORE_EMBEDDING_MODEL",
    )
    embedding_shadow_model: str = setting(
        "", "A second model, which embeds all records in the background to be switched to."
    )
    embedding_dimensions: int | None = setting(
        None,
        "Number of leading numbers kept of each vector, for models that allow it; auto keeps what the model makes.",
        at_least=1,
        at_most=65_536,
    )
    embedding_query_prefix: Verbatim | None = setting(
        None, "Text that the model expects before each query; auto is what its folder says, otherwise none."
    )
    embedding_passage_prefix: Verbatim | None = setting(
        None, "Text that the model expects before each stored text; auto is what its folder says, otherwise none."
    )
    embedding_endpoint: str = setting(
        "",
        "URL of an OpenAI-compatible endpoint that runs embedding_model, such as http://localhost:11434/v1; all "
        "texts and queries are sent there.",
    )
    embedding_endpoint_key_file: Path | None = setting(
        None, "File with the endpoint's key, which other users cannot read."
    )
    embedding_endpoint_timeout_s: float = setting(
        30.0, "Time for a request to the endpoint, with all its attempts.", at_least=0.001
    )
    embedding_endpoint_texts_max: int = setting(32, "Maximum number of texts in a request to the endpoint.", at_least=1)
    embedding_endpoint_tokens_max: int = setting(
        8192, "Estimated maximum number of tokens in a request to the endpoint.", at_least=1
    )
    embedding_passage_tokens: int = setting(
        256, "Estimated number of tokens of a passage for an endpoint's model.", at_least=32, at_most=8192
    )
    embedding_precision: str = setting("int8", "Precision of a built-in model.", choices=("int8", "fp32"))
    embedding_model_dir: Path | None = setting(None, "Folder with the model's weights and tokenizer.")
    embedding_allow_download: bool = setting(True, "Download weights that are not on this machine.")
    embedding_threads: int = setting(
        0,
        "Maximum number of concurrent runs of the model; 0 means one per core, or 4 requests to an endpoint.",
        at_least=0,
    )
    embedding_cache_entries: int = setting(
        10_000, "Number of vectors of recent texts that are cached in memory.", at_least=0
    )
    model_cache_dir: Path | None = setting(None, "Folder for converted models; by default the user's cache folder.")
    exact_scan_passages_max: int = setting(
        20_000, "Number of candidates up to which a search compares all of them.", at_least=0
    )
    erasure_delay_s: float = setting(
        3.0,
        "Seconds after which deleted or replaced data is erased from the server's files; ChromaDB keeps its own.",
        at_least=0.001,
    )
    vector_cache_mib: int = setting(
        512,
        "Maximum memory for the vectors of a collection, with their graph. Of more vectors, less of each is held.",
        at_least=0,
    )
    fusion: str = setting(
        "absolute",
        "What a hybrid search adds: scores that compare across queries, scores scaled per query, or ranks.",
        choices=("absolute", "weighted", "rrf"),
    )
    fusion_vector_weight: float | None = setting(
        None,
        "Weight of meaning in a hybrid search; keywords have the rest. Auto is 0.6 for weighted, otherwise 0.5.",
        at_least=0,
        at_most=1,
    )
    fusion_rrf_k: int = setting(
        60,
        "Constant k of rrf: a rank contributes (k + 1) / (k + rank); a larger k favours first ranks less.",
        at_least=1,
    )
    search_context_weight: float = setting(
        0.75,
        "Weight of a word for the records stored just before and after; 0 scores each record alone.",
        at_least=0,
        at_most=1,
    )
    search_metadata_keys: Texts = setting(
        ("title", "speaker", "author", "from", "role", "date", "time"),
        "Metadata that is searched with texts; a vault keeps its keys until `mnemon-server reembed`.",
    )
    search_reranking: bool = setting(
        True, "Rerank the best 50 turns of conversations of a hybrid search by who speaks, asks and answers."
    )
    max_message_mib: int = setting(4, "Maximum size of a message in either direction.", at_least=1, at_most=512)
    unary_calls_max: int = setting(
        512, "Maximum number of concurrent single calls; further ones are refused.", at_least=1
    )
    answer_memory_mib: int = setting(
        32,
        "Memory for all answers in progress; if it is used up, calls wait for a while and are then refused.",
        at_least=1,
        at_most=65_536,
    )
    quotas_per_tenant: Texts = setting(
        (),
        "What each tenant may use, as NAME=NUMBER: calls_per_second, calls_burst, concurrent_calls, open_streams, "
        "mib_in_flight, records, disk_mib, embedding_seconds_per_minute.",
    )
    quotas_per_caller: Texts = setting(
        (), "What each caller of a tenant may use, such as one API key, in the same form; without the last three."
    )
    streams_max: int = setting(256, "Maximum number of open streams; further ones are refused.", at_least=1)
    default_deadline_s: float = setting(
        60.0, "Deadline of single calls whose clients set none; streams have no deadline.", at_least=0.001
    )
    request_timeout_s: float = setting(
        10.0, "Time within which the request of a single call must arrive.", at_least=0.001
    )
    stream_write_timeout_s: float = setting(
        20.0, "Time for which a client may leave a message of a stream unread.", at_least=0.001
    )
    shutdown_grace_s: float = setting(10.0, "Time that running calls have to finish at shutdown.", at_least=0)
    shutdown_drain_s: float | None = setting(
        None,
        "Time from NOT_SERVING to refusing connections at shutdown; auto is 0 on loopback, otherwise 3.",
        at_least=0,
    )
    health_check_interval_s: float = setting(5.0, "Time between two checks of the store's health.", at_least=0.01)
    log_format: str = setting("console", "Format of the log on standard error.", choices=("json", "console"))
    log_level: str = setting("info", "Minimum level that is logged.", choices=("debug", "info", "warning", "error"))
    trace_endpoint: str = setting(
        "",
        "Address of an OpenTelemetry collector that gets traces by OTLP over gRPC, such as http://localhost:4317; "
        "empty traces nothing.",
    )
    trace_sample_ratio: float = setting(
        0.01,
        "Share of calls that are traced, of those without a traceparent; otherwise that decides.",
        at_least=0.0,
        at_most=1.0,
    )
    reflection: bool | None = setting(
        None, "Enable reflection, /openapi.json and /docs; auto enables them on loopback only."
    )
    connections_max: int = setting(1000, "Maximum number of open connections; further ones are closed.", at_least=1)
    max_connection_age_s: int | None = setting(
        None,
        "Age at which a connection is closed gracefully, its streams within half an hour; 0 means never. Auto is "
        "3600, and never on loopback without mtls.",
        at_least=0,
    )
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


SETTINGS: Mapping[str, Setting] = settings_in(Settings)
