"""Texts that would take long to parse: how far they are parsed, and what is reported about the rest."""

import pytest
from mnemon_server.domain.tool_calls import TEXT_BYTES_MAX, ParseResult
from mnemon_server.services.protocols.findings import BLOCKS_MAX
from mnemon_server.services.protocols.json_scanning import PIECES_MAX
from mnemon_server.services.protocols.parsing import parse_tool_calls
from mnemon_server.services.protocols.searching import PART_CHARACTERS

from tests.support.cases import ordinary

START, END = "[[ABP_TOOL:t]]", "[[END_ABP_TOOL]]"
SOUND = f'{START}{{"a": 1}}{END}'
NOT_READ = "this block and the rest of the text were not read"


def full(text: str, before: str = "", behind: str = "") -> str:
    """As much of `text` as fits beside the rest."""
    return before + text * ((TEXT_BYTES_MAX - len(before) - len(behind)) // len(text.encode())) + behind


def told(result: ParseResult) -> list[tuple[int, str]]:
    return [(problem.offset, problem.reason) for problem in result.problems]


@pytest.mark.parametrize("filling", ["{}", '{"a":x}', '{"a":1,', '{"a":"b",'])
def test_a_block_of_too_many_pieces_ends_the_parsing_and_earlier_calls_count(filling: str) -> None:
    result = parse_tool_calls(full(filling, before=SOUND + START, behind=END))
    assert [call.parameters for call in result.calls] == [{"a": 1}]
    [(offset, reason)] = told(result)
    assert offset == len(SOUND)
    assert reason.endswith(NOT_READ)


def test_no_call_is_read_from_within_a_string_of_the_unparsed_rest() -> None:
    quoted = f'{{"quoted": "{END} {START}{{}}{END}"}}'
    result = parse_tool_calls(f"{START}{'{}' * PIECES_MAX}{quoted}{END}{SOUND}")
    assert result.calls == ()
    assert len(result.problems) == 1


@pytest.mark.parametrize(
    ("block", "calls"),
    [
        (SOUND, BLOCKS_MAX),
        (START, 0),
        (END, 0),
        ("[[ABP_TOOL:", 0),
        ("<<<[END_TOOL_REQUEST]>>>", 0),
    ],
)
def test_only_the_first_blocks_of_too_many_are_read(block: str, calls: int) -> None:
    result = parse_tool_calls(block * (BLOCKS_MAX + 5))
    assert len(result.calls) == calls
    assert len(result.calls) + len(result.problems) == BLOCKS_MAX + 1
    assert told(result)[-1] == (BLOCKS_MAX * len(block), f"at most 16,384 blocks are read; {NOT_READ}")


def test_the_longest_valid_call_is_read_whatever_surrounds_it() -> None:
    numbers = "1," * 500_000
    for before, behind in (("", ""), ("```json\n", "\n```"), ("Here it is: ", "")):
        result = parse_tool_calls(f'{START}{before}{{"a": [{numbers}1]}}{behind}{END}{SOUND}')
        assert [len(call.parameters) for call in result.calls] == [1, 1]
        assert len(result.calls[0].parameters["a"]) == 500_001


@pytest.mark.parametrize("filling", [" ", "{", "a"])
@pytest.mark.parametrize("call", ['{"a": 1}', '{ \n "a": 1}', "{a : 1}", '{"a": 1, "b": [2]}', "{'a': 1}"])
@pytest.mark.parametrize("behind_part", ordinary(range(-9, 3)))
def test_an_object_that_begins_where_a_part_of_the_search_ends_is_found(
    filling: str, call: str, behind_part: int
) -> None:
    prose = filling * (PART_CHARACTERS + behind_part)
    result = parse_tool_calls(f"{START}{prose} {call}{END}")
    assert [call.parameters["a"] for call in result.calls] == [1]


@pytest.mark.parametrize("filling", [" ", "[", "<"])
@pytest.mark.parametrize(
    "call", [SOUND, "<think>x</think>" + SOUND, "<<<[TOOL_REQUEST]>>>tool_name:「始」t「末」<<<[END_TOOL_REQUEST]>>>"]
)
@pytest.mark.parametrize("behind_part", ordinary(range(-26, 2)))
def test_a_marker_that_begins_where_a_part_of_the_search_ends_is_found(
    filling: str, call: str, behind_part: int
) -> None:
    prose = filling * (PART_CHARACTERS + behind_part)
    assert [each.tool for each in parse_tool_calls(prose + call).calls] == ["t"]
