"""Lines of the audit log are JSON, whatever callers are called, and verify."""

import json
import resource
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mnemon_server.domain.access.audit import AuditEntry, LeftOut
from mnemon_server.domain.errors import StorageFailedError
from mnemon_server.engines.audit_file import AuditFile, audit_hash, read_audit, verify_audit

TIMES_MS = {
    1_795_619_045_678: "2026-11-25T15:04:05.678Z",
    1_795_619_045_000: "2026-11-25T15:04:05.000Z",
    1_795_619_999_999: "2026-11-25T15:19:59.999Z",
}

texts = st.text(max_size=12) | st.sampled_from(["", '"', "\\", "\n", "ü€", "key:1f3a"])
entries = st.builds(
    AuditEntry,
    time_ms=st.sampled_from([*TIMES_MS]),
    tenant=texts,
    subject=texts,
    peer=texts,
    method=texts,
    code=texts,
    request_id=texts,
    records=st.lists(texts, max_size=3).map(tuple),
)


def expected(folder: Path, sequence: int, entry: AuditEntry) -> dict[str, Any]:
    """A line without its hash."""
    named = {
        "tenant": entry.tenant,
        "subject": entry.subject,
        "peer": entry.peer,
        "records": [audit_hash(folder, entry.tenant, one) for one in dict.fromkeys(entry.records) if one],
    }
    return {
        "sequence": sequence,
        "time": TIMES_MS[entry.time_ms],
        "method": entry.method,
        "code": entry.code,
        "request_id": entry.request_id,
        **{name: value for name, value in named.items() if value},
    }


@settings(max_examples=50, derandomize=True, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(entries, max_size=4), min_size=1, max_size=3))
def test_lines_say_what_the_entries_say_and_verify(tmp_path: Path, batches: list[list[AuditEntry]]) -> None:
    folder = tmp_path / str(len(list(tmp_path.iterdir())))
    for batch in batches:
        # Each time a new process, which goes on where the last one has ended.
        AuditFile(folder).append([*batch, LeftOut(1_795_619_045_678, 3)])
    written = [*read_audit(folder)]
    numbers = iter(range(1, len(written) + 1))
    wanted = []
    for batch in batches:
        wanted += [expected(folder, next(numbers), entry) for entry in batch]
        wanted.append({"sequence": next(numbers), "time": "2026-11-25T15:04:05.678Z", "left_out": 3})
    assert [{name: value for name, value in line.items() if name != "chain"} for line in written] == wanted
    assert verify_audit(folder).problems == ()


EACH_WITH_A_HASH = """\
{"chain":"2e2685d70e79beddd5c470afc643496cabd45632bcd18c83c8041e55e21f9919","code":"OK","method":"a/B",\
"records":["55ec713533f1eafa3bddc91b051dffa8"],"request_id":"1","sequence":1,"subject":"key:1","tenant":"acme",\
"time":"2026-11-25T15:04:05.678Z"}
{"chain":"cf0161cecb95bc35cd41bb540def4706a64d552d0a2aa1d64d54f8ce570ee498","code":"OK","method":"a/B",\
"request_id":"2","sequence":2,"subject":"key:1","tenant":"acme","time":"2026-11-25T15:04:05.679Z"}
"""
"""How logs were written before lines shared a hash, under the key 00 01 02 ... 1f."""


def test_a_log_whose_lines_each_have_a_hash_verifies_and_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    folder.mkdir(mode=0o700)
    (folder / "key").write_bytes(bytes(range(32)))
    file, chain = folder / f"{1:015d}.jsonl", EACH_WITH_A_HASH.rpartition('"chain":"')[2][:64]
    file.write_text(EACH_WITH_A_HASH, encoding="utf-8")
    (folder / "head").write_text(json.dumps({"sequence": 2, "chain": chain}), encoding="utf-8")
    assert verify_audit(tmp_path).problems == ()
    AuditFile(tmp_path).append([AuditEntry(0, "acme", "key:1", "", "a/B", "OK", str(number)) for number in (3, 4)])
    assert verify_audit(tmp_path).problems == ()
    assert [line["request_id"] for line in read_audit(tmp_path)] == ["1", "2", "3", "4"]
    assert next(read_audit(tmp_path))["records"] == [audit_hash(tmp_path, "acme", "one")]
    file.write_text(file.read_text(encoding="utf-8").replace('"2"', '"9"'), encoding="utf-8")
    assert verify_audit(tmp_path).problems == ("entry 2 was changed, or an entry before is missing",)


def test_lines_that_fit_only_in_part_are_not_kept(tmp_path: Path) -> None:
    log = AuditFile(tmp_path)
    log.append([LeftOut(0, 1)])
    [path] = (tmp_path / "audit").glob("*.jsonl")
    whole, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 10, limits[1]))
    try:
        with pytest.raises(StorageFailedError):
            log.append([LeftOut(0, 2)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == whole
    log.append([LeftOut(0, 3)])
    assert [line["left_out"] for line in read_audit(tmp_path)] == [1, 3]
    assert verify_audit(tmp_path).problems == ()
