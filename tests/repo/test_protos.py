"""The protos work for every language, reads are marked as reads, and v1 does not change."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pb2 import MethodOptions

from tests.support.repository import ROOT
from tests.support.rpcs import modules, rpcs

FILES = [module.DESCRIPTOR for module in modules()]
SHARED_OPTIONS = {
    "csharp_namespace": "Mnemon.V1",
    "go_package": "github.com/mnemon-ai/mnemon/gen/go/mnemon/v1;mnemonv1",
    "java_multiple_files": True,
    "java_package": "dev.mnemon.v1",
    "php_metadata_namespace": r"Mnemon\V1\GPBMetadata",
    "php_namespace": r"Mnemon\V1",
    "ruby_package": "Mnemon::V1",
    "swift_prefix": "MnemonV1",
}


def test_every_file_sets_its_package_for_every_language() -> None:
    for file in FILES:
        options = file.GetOptions()
        found = {field.name: value for field, value in options.ListFields()}
        stem = file.name.rpartition("/")[2].removesuffix(".proto")
        java_class = "".join(word.capitalize() for word in stem.split("_")) + "Proto"
        assert found == {**SHARED_OPTIONS, "java_outer_classname": java_class}, file.name


METHODS = [rpc.method for rpc in rpcs()]
READ = re.compile(
    "(Batch)?(Arbitrate|Check|Count|Detect|Export|Find|Forecast|Get|List|Parse|Preview|Query|Recall|Resolve|Search|Summarize|Watch|WhoAmI)"
)
SAME_AGAIN = {
    *("CreateBackup", "ImportRecords", "RebuildIndex", "CreateTenant", "UpdateTenant", "DeleteTenant"),
    *("CreateGrant", "AcceptGrant", "RevokeGrant"),
    *("QuarantineOrigin", "ReleaseOrigin"),
}
"""Writes that do no more when they are repeated, such as an import of what is there, or that change no vault."""
NEVER_REPEATED = {"CallTool", "ExecuteText"}
"""What an operator's tool does may be nothing to do twice."""
ONLY_ONCE = {"CreateKey", "RotateKey", "RevokeKey"}
"""A secret is shown only once, so an answer with one cannot be repeated."""


def _is_read(method: MethodDescriptor) -> bool:
    return bool(method.GetOptions().idempotency_level == MethodOptions.NO_SIDE_EFFECTS)


def test_exactly_the_methods_named_like_reads_are_marked_as_reads() -> None:
    named = {method.full_name for method in METHODS if READ.match(method.name)}
    assert {method.full_name for method in METHODS if _is_read(method)} == named


def test_every_write_can_be_repeated() -> None:
    harmless = {method.full_name for method in METHODS if _is_read(method) or method.name in SAME_AGAIN | ONLY_ONCE}
    others = {method.full_name for method in METHODS} - harmless
    assert {method.full_name for method in METHODS if _takes_request_id(method)} == others


def _takes_request_id(method: MethodDescriptor) -> bool:
    fields = method.input_type.fields_by_name
    if method.client_streaming and "requests" in fields:
        fields = fields["requests"].message_type.fields_by_name
    return "request_id" in fields


def test_the_service_config_retries_what_is_safe_and_limits_every_unary_call() -> None:
    config = json.loads((ROOT / "protos/service_config.json").read_text("utf-8"))
    timed, repeated = set(), set()
    for each in config["methodConfig"]:
        names = {f"{name['service']}.{name['method']}" for name in each["name"]}
        timed |= names if each["timeout"] else set()
        repeated |= names if "retryPolicy" in each else set()

    single = {method for method in METHODS if not (method.client_streaming or method.server_streaming)}
    safe = {method for method in single if _is_read(method) or _takes_request_id(method)}
    assert timed == {method.full_name for method in single}
    assert repeated == {method.full_name for method in safe if method.name not in NEVER_REPEATED}


REFUSED = 100
"""How `buf breaking` ends where a rule is broken; 1 is any other failure."""
BREAKING = {
    "a field is removed": ("  // The agent that wrote the record.\n  string agent = 4;\n", ""),
    "a field is renumbered": ("string agent = 4;", "string agent = 14;"),
    "a field is renamed": ("string agent = 4;", "string writer = 4;"),
    "a field has another type": ("string agent = 4;", "bytes agent = 4;"),
    "a list becomes one value": ("repeated string values = 1;", "string values = 1;"),
    "an enum value is renamed": ("SEARCH_MODE_KEYWORD = 2;", "SEARCH_MODE_WORD = 2;"),
    "a package of Java is another": ('"dev.mnemon.v1"', '"dev.mnemon"'),
}


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the protos with their image, as in a release."""
    copy = tmp_path_factory.mktemp("api")
    shutil.copytree(ROOT / "protos", copy / "protos")
    shutil.copy(ROOT / "buf.yaml", copy)
    assert _buf(copy, "build", "--exclude-source-info", "--output", "protos/v1.binpb") == 0
    return copy


@pytest.mark.parametrize("change", BREAKING)
def test_a_change_that_breaks_v1_is_refused(released: Path, tmp_path: Path, change: str) -> None:
    old, new = BREAKING[change]
    assert _compared(released, tmp_path, old, new) == REFUSED


def test_an_addition_to_v1_is_accepted(released: Path, tmp_path: Path) -> None:
    added = "string agent = 4;\n  // Where it was written.\n  string place = 40;"
    assert _compared(released, tmp_path, "string agent = 4;", added) == 0


def _compared(released: Path, folder: Path, old: str, new: str) -> int:
    """The result of `make breaking` after the change."""
    copy = shutil.copytree(released, folder / "changed")
    common = copy / "protos/mnemon/v1/common.proto"
    text = common.read_text("utf-8")
    assert old in text
    common.write_text(text.replace(old, new, 1), "utf-8")
    return _buf(copy, "breaking", "--against", "protos/v1.binpb")


def _buf(folder: Path, *arguments: str) -> int:
    buf = shutil.which("buf", path=str(Path(sys.executable).parent))
    assert buf, "buf is one of the development tools; `make test` installs it"
    return subprocess.run([buf, *arguments], cwd=folder, check=False).returncode
