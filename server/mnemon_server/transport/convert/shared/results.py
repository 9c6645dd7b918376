"""The outcomes of bulk requests: a receipt or an error for each item."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from mnemon_server.domain.records import WriteReceipt
from mnemon_server.transport.status import Failure
from mnemon_server.wire.values import fill_receipt

Answer = TypeVar("Answer")
Written = TypeVar("Written")


def with_receipts(message: Answer, outcomes: Iterable[WriteReceipt | Failure]) -> Answer:
    """The answer to a bulk request, with the outcome of each item."""
    return with_results(message, outcomes, lambda result, receipt: fill_receipt(result.receipt, receipt))


def with_results(
    message: Answer, outcomes: Iterable[Written | Failure], fill: Callable[[Any, Written], object]
) -> Answer:
    """The same for items that have more than a receipt, which `fill` writes into their result."""
    answer: Any = message
    for outcome in outcomes:
        result = answer.results.add()
        if isinstance(outcome, Failure):
            result.error.CopyFrom(outcome.to_item_error())
        else:
            fill(result, outcome)
    return message
