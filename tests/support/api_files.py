"""Writes two files beside the protos that programs of every language read: `errors.json` and `service_config.json`.

    python -m tests.support.api_files image folder

The image is the output of `buf build --as-file-descriptor-set`. Everything is read from it, so that neither file
can differ from the protos. Only protobuf is needed.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
    MethodOptions,
)

DOMAIN = "mnemon"
ERRORS_PROTO = "mnemon/v1/errors.proto"
SERVED_BY_OTHERS = ("ExtractorService", "ToolProviderService")
ENUM_OF_REASONS, VALUE = [5, 0], 2
"""Where a file's first enum is, and an enum's values, by the numbers of descriptor.proto."""
MEANING = re.compile(r"([A-Z_]+)(, may be tried again)?\. (.*)")
LONG = re.compile(r"Purge|Prune|CreateSnapshot|PreviewExtraction|Delete\w+s$")
"""What may go through all records of a kind, or wait for a language model."""

RETRY_POLICY = {
    "maxAttempts": 4,
    "initialBackoff": "0.1s",
    "maxBackoff": "1s",
    "backoffMultiplier": 2,
    # A server that shuts down cancels calls that its runtime has accepted but that no handler has seen yet. A call that
    # its own caller cancels is not retried.
    "retryableStatusCodes": ["UNAVAILABLE", "CANCELLED"],
}
# All channels of a process to one address share these tokens, of which gRPC allows no more. A failure takes one, a
# success gives one back, and below half there are no retries. A server that stops fails hundreds of calls at once.
RETRY_THROTTLING = {"maxTokens": 1000, "tokenRatio": 1}


def errors(image: FileDescriptorSet) -> dict[str, Any]:
    """The reasons with the comments of errors.proto."""
    [file] = [file for file in image.file if file.name == ERRORS_PROTO]
    comments = {
        tuple(location.path): " ".join(location.leading_comments.split()) for location in file.source_code_info.location
    }
    found = []
    for index, value in list(enumerate(file.enum_type[0].value))[1:]:
        said = MEANING.fullmatch(comments[*ENUM_OF_REASONS, VALUE, index])
        if said is None:
            raise SystemExit(f"{value.name}: the comment must be a code, and a full stop, and the meaning")
        reason = value.name.removeprefix("ERROR_REASON_")
        found.append({"reason": reason, "code": said[1], "retry": said[2] is not None, "meaning": said[3]})
    return {"domain": DOMAIN, "errors": found}


def service_config(image: FileDescriptorSet) -> dict[str, Any]:
    """Retries and deadlines of every unary call, as gRPC reads them in every language."""
    groups: dict[tuple[str, bool], list[dict[str, str]]] = {}
    for name, is_long, may_repeat in _single_calls(image):
        service, _, method = name.rpartition("/")
        groups.setdefault(("600s" if is_long else "60s", may_repeat), []).append({"service": service, "method": method})
    return {
        "loadBalancingConfig": [{"round_robin": {}}],
        "methodConfig": [
            {"name": names, "timeout": timeout, **({"retryPolicy": RETRY_POLICY} if may_repeat else {})}
            for (timeout, may_repeat), names in sorted(groups.items(), key=lambda group: group[0])
        ],
        "retryThrottling": RETRY_THROTTLING,
    }


def _single_calls(image: FileDescriptorSet) -> Iterator[tuple[str, bool, bool]]:
    """The name of each, whether it may take long, and whether it may be retried."""
    files = [file for file in image.file if file.name.startswith("mnemon/")]
    messages = {f".{each.package}.{message.name}": message for each in files for message in each.message_type}
    for file, service in [(each, service) for each in files for service in each.service]:
        for method in service.method:
            if service.name in SERVED_BY_OTHERS or method.client_streaming or method.server_streaming:
                continue
            name = f"{file.package}.{service.name}/{method.name}"
            yield name, LONG.match(method.name) is not None, _may_repeat(file, method, messages[method.input_type])


def _may_repeat(file: FileDescriptorProto, method: MethodDescriptorProto, request: DescriptorProto) -> bool:
    """True for a read, or a write that a request_id makes idempotent. An operator's tool may be neither."""
    if method.options.idempotency_level == MethodOptions.NO_SIDE_EFFECTS:
        return True
    return "request_id" in (field.name for field in request.field) and file.name != "mnemon/v1/tools.proto"


def main() -> None:
    """Writes both files."""
    image = FileDescriptorSet.FromString(Path(sys.argv[1]).read_bytes())
    for name, content in (("errors", errors(image)), ("service_config", service_config(image))):
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        (Path(sys.argv[2]) / f"{name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
