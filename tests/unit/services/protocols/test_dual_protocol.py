"""Which protocol a text is parsed with, and how that is counted."""

import pytest
from mnemon_server.domain.tool_calls import Fallback, ParseOptions, Protocol, ProtocolStatistics
from mnemon_server.services.protocols.parsing import parse_tool_calls
from mnemon_server.services.protocols.statistics import ProtocolCounters

ABP = '[[ABP_TOOL:a]]{"x": 1}[[END_ABP_TOOL]]'
BAD_ABP = "[[ABP_TOOL:a]]{[[END_ABP_TOOL]]"
VCP = "<<<[TOOL_REQUEST]>>>tool_name:「始」v「末」<<<[END_TOOL_REQUEST]>>>"
BAD_VCP = "<<<[TOOL_REQUEST]>>><<<[END_TOOL_REQUEST]>>>"
PLAIN = "Nothing to do."


@pytest.mark.parametrize(
    ("text", "protocols", "fallback"),
    [
        (ABP, [Protocol.ABP], Fallback.NONE),
        (VCP + ABP + VCP, [Protocol.ABP], Fallback.NONE),
        (BAD_ABP + ABP + VCP, [Protocol.ABP], Fallback.NONE),
        (VCP + VCP, [Protocol.VCP, Protocol.VCP], Fallback.VCP),
        (BAD_ABP + VCP, [Protocol.VCP], Fallback.VCP),
        (BAD_ABP + BAD_VCP, [], Fallback.PLAIN_TEXT),
        (PLAIN, [], Fallback.PLAIN_TEXT),
    ],
)
def test_abp_is_tried_first_and_vcp_is_the_fallback(text: str, protocols: list[Protocol], fallback: Fallback) -> None:
    result = parse_tool_calls(text)
    assert ([call.protocol for call in result.calls], result.fallback) == (protocols, fallback)


def test_without_dual_mode_vcp_is_ignored() -> None:
    for text in [VCP, BAD_ABP + VCP]:
        result = parse_tool_calls(text, ParseOptions(dual_mode=False))
        assert (result.calls, result.fallback) == ((), Fallback.PLAIN_TEXT)


def test_a_failed_text_reports_the_errors_of_both_protocols() -> None:
    problems = parse_tool_calls(BAD_VCP + BAD_ABP).problems
    assert [problem.protocol for problem in problems] == [Protocol.VCP, Protocol.ABP]


@pytest.mark.parametrize(
    ("dual_mode", "expected"),
    [
        (
            True,
            ProtocolStatistics(
                total=8, abp_success=2, abp_failed=4, vcp_fallback_success=2, vcp_fallback_failed=2, plain_text=2
            ),
        ),
        (False, ProtocolStatistics(total=8, abp_success=2, abp_failed=2, plain_text=4)),
    ],
)
def test_each_text_is_counted_once(dual_mode: bool, expected: ProtocolStatistics) -> None:  # noqa: FBT001
    counters, options = ProtocolCounters(), ParseOptions(dual_mode=dual_mode)
    for text in [ABP, ABP + VCP, VCP, BAD_ABP + VCP, BAD_ABP, BAD_VCP, PLAIN, f"<think>{ABP}</think>"]:
        counters.count(parse_tool_calls(text, options), options)
    assert counters.statistics() == expected
