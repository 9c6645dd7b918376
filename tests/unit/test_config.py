"""Settings: which value wins, where it comes from, and what is refused."""

import os
from pathlib import Path
from typing import Any

import pytest
from mnemon_server.config.address import Address
from mnemon_server.config.loading import hint_at_variable, load_settings
from mnemon_server.config.reference import render_markdown
from mnemon_server.config.settings import SETTINGS, Settings
from mnemon_server.config.values import Setting, parse_value
from mnemon_server.domain.errors import ConfigurationError

CONFIGURATION = Path(__file__).parents[2] / "server" / "CONFIGURATION.md"


def test_a_flag_wins_over_the_environment_over_the_file_over_the_default(tmp_path: Path) -> None:
    file = tmp_path / "mnemon.toml"
    file.write_text('collection = "file"\nstreams_max = 1\nunary_calls_max = 1\n')
    loaded = load_settings(
        file=file,
        environ={"MNEMON_STREAMS_MAX": "2", "MNEMON_UNARY_CALLS_MAX": "2"},
        flags={"unary_calls_max": "3", "listen": None},
    )
    settings = loaded.settings
    assert (settings.collection, settings.streams_max, settings.unary_calls_max) == ("file", 2, 3)
    assert settings.listen == "127.0.0.1:50051"
    assert loaded.origins["collection"] == f"file {file}"
    assert loaded.origins["streams_max"] == "environment MNEMON_STREAMS_MAX"
    assert loaded.origins["unary_calls_max"] == "flag --unary-calls-max"
    assert loaded.origins["listen"] == "default"


def test_a_variable_may_name_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mnemon.toml"
    file.write_text("insecure = true\n")
    assert load_settings(environ={"MNEMON_CONFIG": str(file)}).settings.insecure


CHROMA = {"chroma_host": "db", "memory_backend": "chromadb"}


@pytest.mark.parametrize(
    ("variable", "name", "value"),
    [
        ("KNOWLEDGE_STORE_BACKEND", "knowledge_store_backend", "local"),
        ("KNOWLEDGE_STORE_HOST", "chroma_host", "chroma"),
        ("KNOWLEDGE_STORE_PORT", "chroma_port", 9000),
        ("KNOWLEDGE_STORE_COLLECTION", "collection", "notes"),
        ("KNOWLEDGE_STORE_EMBEDDING_MODEL", "embedding_model", "hashing"),
    ],
)
def test_the_names_of_the_knowledge_store_are_honoured_and_ours_win(variable: str, name: str, value: object) -> None:
    loaded = load_settings(environ={variable: str(value)})
    assert getattr(loaded.settings, name) == value
    assert loaded.origins[name] == f"environment {variable}"
    both = load_settings(
        environ={variable: "in_memory" if name.endswith("backend") else "1", SETTINGS[name].variables[0]: str(value)}
    )
    assert getattr(both.settings, name) == value


@pytest.mark.parametrize(
    ("name", "raw", "message"),
    [
        ("chroma_port", "x", r"chroma_port \(.*\): 'x' is invalid; it must be a whole number"),
        ("chroma_port", "0", "must be from 1 to 65535"),
        ("chroma_port", "65536", "must be from 1 to 65535"),
        ("unary_calls_max", "-1", "must be 1 or more"),
        ("insecure", "perhaps", "must be true or false"),
        ("fusion_vector_weight", "1.5", "must be from 0 to 1"),
        ("fusion_vector_weight", "nan", "must be a number"),
        ("knowledge_store_backend", "redis", "must be one of chromadb, local, in_memory"),
        ("log_level", "loud", "must be one of debug, info, warning, error"),
        (
            "tool_actions_permitted",
            "create,fly",
            "'create,fly' is invalid; it must be one or more of create, update",
        ),
        ("tool_actions_permitted", ",", "must be one or more of create, update, delete"),
        ("tool_namespace", "user-{id}", "setting tool_namespace: .* must be one key in braces"),
        ("tool_namespace", "a\0b", r"setting tool_namespace: .* must be valid Unicode"),
        ("listen", "nowhere", "must be HOST:PORT"),
        ("listen", "127.0.0.1:65536", "must be HOST:PORT"),
    ],
)
def test_an_invalid_value_is_refused_with_the_valid_ones(name: str, raw: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load_settings(environ={SETTINGS[name].variables[0]: raw})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("collection_ = 'x'", "'collection_' in the file .* is not a setting; did you mean 'collection'"),
        ("chroma_port = 1.5", "must be a whole number"),
        ("chroma_port = true", "must be a whole number"),
        ("collection = 7", "must be text"),
        ("default_deadline_s = false", "must be a number"),
        ("data_dir = 7", "must be a path"),
        ("tool_namespace = 7", "must be a list of texts, or a text separated by commas"),
        ("tool_namespace = ['a', 7]", "must be a list of texts"),
        ("listen = [", "cannot be read"),
    ],
)
def test_a_file_with_a_mistake_is_refused(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "mnemon.toml"
    file.write_text(content)
    with pytest.raises(ConfigurationError, match=message):
        load_settings(file=file, environ={})


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no\.toml cannot be read"):
        load_settings(file=tmp_path / "no.toml", environ={})


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"tls_certificate": "a.pem"}, "tls_certificate and tls_key belong together"),
        ({"tls_key": "a.key"}, "tls_certificate and tls_key belong together"),
        ({"tls_client_ca": "ca.pem"}, "tls_client_ca needs tls_certificate"),
        ({"authentication": "jwt"}, "authentication jwt needs identity_file"),
        ({"authentication": "api_key,jwt,mtls"}, "authentication jwt and mtls needs identity_file"),
        ({"authentication": "api_key", "identity_file": "i.toml"}, "identity_file needs authentication to contain"),
        ({"authentication": "mtls", "identity_file": "i.toml"}, "authentication mtls needs tls_client_ca"),
        ({"authentication": "api_key,unix"}, "authentication unix needs listen to be unix:PATH"),
        ({"authentication": "unix", "listen": "unix:/a", "http_listen": "127.0.0.1:1"}, "unix needs http_listen to be"),
        (CHROMA | {"collection": "kb"}, "setting collection: 'kb' is invalid; it must be 3 to 512 letters"),
        (CHROMA | {"collection": "notes-"}, "setting collection: 'notes-' is invalid"),
        (CHROMA | {"collection": "ni\u00f1o"}, "setting collection"),
        (CHROMA | {"collection": "a..b"}, "without two periods in a row"),
        (CHROMA | {"collection": "10.0.0.1"}, "not an IP address"),
        (CHROMA | {"collection": "x" * 513}, "setting collection"),
        (
            {"chroma_host": "db", "memory_backend": "chromadb", "memory_collection": "my notes"},
            "setting memory_collection: 'my notes'",
        ),
        (
            {"chroma_host": "db", "memory_backend": "chromadb", "collection": "memories"},
            "collection and memory_collection are the same",
        ),
        ({"chroma_host": "chroma:8000"}, "setting chroma_host: 'chroma:8000' is invalid; .* port is chroma_port"),
        ({"chroma_host": "ftp://chroma"}, "setting chroma_host"),
        ({"http_listen": "0.0.0.0:80"}, "0.0.0.0:80 can be reached from other machines"),
        ({"http_origins": "https://a.example"}, "http_origins needs http_listen"),
        ({"http_origins": "a.example", "http_listen": "127.0.0.1:1"}, "'a.example' is not an origin"),
        ({"http_origins": "https://a.example/x", "http_listen": "127.0.0.1:1"}, "is not an origin"),
        ({"authentication": "password"}, "one or more of api_key, jwt, mtls, unix"),
        ({"listen": "0.0.0.0:50051"}, "set tls_certificate and tls_key .* or set --insecure"),
        ({"listen": "[::]:50051"}, "can be reached from other machines"),
        ({"listen": "example.org:50051"}, "can be reached from other machines"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(flags: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load_settings(environ={}, flags=flags)


@pytest.mark.parametrize(
    "flags",
    [
        {"listen": "0.0.0.0:50051", "insecure": "true"},
        {"listen": "0.0.0.0:50051", "tls_certificate": "a.pem", "tls_key": "a.key"},
        {"listen": "[::1]:50051"},
        {"listen": "localhost:0"},
        {"listen": "unix:/run/mnemon.sock"},
    ],
)
def test_plaintext_is_served_on_a_local_address_or_on_request(flags: dict[str, str]) -> None:
    assert load_settings(environ={}, flags=flags).settings.listen == flags["listen"]


@pytest.mark.parametrize(
    "flags",
    [
        {"collection": "kb"},
        {"collection": "kb", "knowledge_store_backend": "local", "chroma_host": "db"},
        {"memory_collection": "kb", "chroma_host": "db"},
        {"collection": "a.b_c-D" + "x" * 500, "chroma_host": "db"},
        *({"chroma_host": host} for host in ("chroma", "10.0.0.1", "::1", "[::1]", "https://chroma.example:8443/db")),
    ],
)
def test_what_chroma_takes_or_never_sees_is_accepted(flags: dict[str, str]) -> None:
    assert load_settings(environ={}, flags=flags).settings


def test_unknown_variables_are_named_and_ignored() -> None:
    # Kubernetes sets these in every container next to a service called "mnemon".
    environ = {"MNEMON_PORT": "tcp://10.0.0.1:50051", "MNEMON_SERVICE_HOST": "10.0.0.1", "PATH": "/bin"}
    assert load_settings(environ=environ).unknown_variables == ("MNEMON_PORT", "MNEMON_SERVICE_HOST")


def test_a_misspelt_variable_gets_the_one_that_may_be_meant() -> None:
    assert hint_at_variable("MNEMON_DATADIR") == "; did you mean MNEMON_DATA_DIR?"
    assert hint_at_variable("MNEMON_SERVICE_HOST") == ""


def test_no_setting_has_a_name_that_kubernetes_would_set() -> None:
    taken = ("MNEMON_PORT", "MNEMON_SERVICE_HOST", "MNEMON_SERVICE_PORT")
    assert not [row.name for row in SETTINGS.values() if row.variables[0].startswith(taken)]


def test_an_empty_variable_is_not_set() -> None:
    loaded = load_settings(environ={"MNEMON_CHROMA_PORT": "", "KNOWLEDGE_STORE_PORT": "9000"})
    assert loaded.settings.chroma_port == 9000


@pytest.mark.parametrize(("raw", "value"), [("auto", None), ("", None), ("on", True), ("0", False)])
def test_automatic_is_a_value_of_settings_that_have_it(raw: str, value: object) -> None:
    assert load_settings(environ={}, flags={"reflection": raw}).settings.reflection is value


@pytest.mark.parametrize(
    ("raw", "value"),
    [("{user_id}", ("{user_id}",)), (" a , {user_id},memories", ("a", "{user_id}", "memories")), ("", ())],
)
def test_a_list_is_a_text_with_commas(raw: str, value: tuple[str, ...]) -> None:
    assert load_settings(environ={}, flags={"tool_namespace": raw}).settings.tool_namespace == value


def test_a_list_in_a_file_is_a_list_or_a_text_with_commas(tmp_path: Path) -> None:
    file = tmp_path / "mnemon.toml"
    file.write_text("tool_namespace = ['{user_id}', 'a,b']\ntool_actions_permitted = 'update,create'\n")
    settings = load_settings(file=file, environ={}).settings
    assert (settings.tool_namespace, settings.tool_actions_permitted) == (("{user_id}", "a,b"), ("update", "create"))


def test_a_secret_is_neither_shown_nor_repeated_in_an_error() -> None:
    row = _row(secret=True)
    assert row.show("hunter2") == "********"
    assert row.show("") == ""
    with pytest.raises(ConfigurationError) as refused:
        parse_value(_row(secret=True, type=int), "hunter2", "environment MNEMON_TOKEN")
    assert "hunter2" not in str(refused.value)
    assert "token (environment MNEMON_TOKEN)" in str(refused.value)


def test_the_home_folder_may_be_written_as_a_tilde() -> None:
    assert load_settings(environ={}, flags={"data_dir": "~/x"}).settings.data_dir == Path.home() / "x"


def test_the_master_key_comes_from_one_place_and_is_shown_nowhere() -> None:
    with pytest.raises(ConfigurationError, match=r"master_key_file and master_key are set, .*: set only one"):
        load_settings(environ={"MNEMON_MASTER_KEY": "ab" * 32}, flags={"master_key_file": "key"})
    settings = load_settings(environ={"MNEMON_MASTER_KEY": "ab" * 32}).settings
    assert settings.master_key == "ab" * 32
    assert "abab" not in repr(settings)
    assert SETTINGS["master_key"].show(settings.master_key) == "********"
    assert SETTINGS["master_key"].flag == ""


def test_defaults_are_valid_values_of_their_settings() -> None:
    typed = {name: row.show(row.default) for name, row in SETTINGS.items() if row.show(row.default)}
    assert load_settings(environ={}, flags=typed).settings == Settings()


def test_the_documentation_of_every_setting_is_up_to_date() -> None:
    assert CONFIGURATION.read_text() == render_markdown(), (
        "run `mnemon-server check-config --markdown > server/CONFIGURATION.md`"
    )
    documented = render_markdown()
    for row in SETTINGS.values():
        assert f"| `{row.name}` |" in documented
        assert row.flag in documented


@pytest.mark.parametrize(
    ("text", "dialled"),
    [("0.0.0.0:1", "127.0.0.1:1"), ("[::]:1", "[::1]:1"), ("h:1", "h:1"), ("unix:/s", "unix:/s")],
)
def test_this_machine_connects_to_a_wildcard_address_by_its_own(text: str, dialled: str) -> None:
    assert str(Address.parse(text).dialled) == dialled
    assert str(Address.parse(text)) == text


def test_port_zero_becomes_the_assigned_port() -> None:
    assert str(Address.parse("127.0.0.1:0").at_port(7)) == "127.0.0.1:7"
    assert str(Address.parse("unix:/s").at_port(7)) == "unix:/s"


def _row(**changes: Any) -> Setting:
    fields: dict[str, Any] = {
        "name": "token", "type": str, "optional": False, "default": "", "help": "", "choices": (),
        "at_least": -1.0, "at_most": 1.0, "also": "", "secret": False,
    }  # fmt: skip
    return Setting(**{**fields, **changes})


def test_the_environment_of_this_process_can_be_loaded() -> None:
    assert load_settings(environ=os.environ).settings
