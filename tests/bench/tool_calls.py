"""Measures how long parsing the calls of a text takes, and whether the time is linear for hostile texts.

python -m tests.bench.tool_calls [--kibibytes 64 256 1024] [--repeats 3]
"""

import argparse
import json
import time
from collections.abc import Callable
from itertools import pairwise

from mnemon_server.domain.tool_calls import TEXT_BYTES_MAX
from mnemon_server.services.protocols.parsing import parse_tool_calls

from tests.bench import machine

START, END = "[[ABP_TOOL:t]]", "[[END_ABP_TOOL]]"
VCP_START, VCP_END = "<<<[TOOL_REQUEST]>>>", "<<<[END_TOOL_REQUEST]>>>"
NAME = "tool_name:「始」t「末」"


def _block(inside: str) -> str:
    return START + inside + END


# Name → the start, the part that is repeated until the text is long enough, and the end.
HOSTILE: dict[str, tuple[str, str, str]] = {
    "open braces": (START, "{", END),
    "open braces with keys": (START, '{"a":', END),
    "open brackets": (START + '{"a":', "[", END),
    "open brackets, then braces closed": (START + '{"a":' * 20_000, "]", END),
    "braces in prose": (START, "{ x ", END),
    "double quotes": (START + "{", '"', END),
    "single quotes": (START + "{", "'", END),
    "quotes and commas": (START + '{"a": "', 'x", y', END),
    "quotes and spaces": (START + '{"a": "', 'x" ', END),
    "backslashes": (START + '{"a": "', "\\", END),
    "escaped quotes": (START + '{a: \\"', '\\"', END),
    "commas": (START + "{", ",", "}" + END),
    "colons": (START + "{", ":", "}" + END),
    "comments": (START + "{", "/**/", '"a": 1,}' + END),
    "open comments": (START + "{", "/*", END),
    "one long word": (START + "{", "a", END),
    "spaces": (START + '{"a"', " ", "1,}" + END),
    "line breaks in a string": (START + '{"a": "', "b\n", '",}' + END),
    "a list without commas": (START + '{"a": [', "1 ", "]}" + END),
    "members without commas": (START + "{", '"a": "b" ', "}" + END),
    "objects one after the other": (START, '{"a": 1,} ', END),
    "sound objects one after the other": (START, '{"a": 1} ', END),
    "start markers": ("", START, ""),
    "start markers cut off": ("", "[[ABP_TOOL:", ""),
    "end markers": ("", END, ""),
    "blocks with an open string": ("", _block('{"a'), ""),
    "blocks with an open single quote": ("", _block("{'a"), '"'),
    "blocks with an escaped quote": ("", START + '{a:\\"x' + END, '"'),
    "blocks with an open comment": ("", _block("{/*"), "*/"),
    "blocks to repair": ("", _block('{"a": 1,}'), ""),
    "blocks in a string": (START + '{"a": "', START + END, '"}' + END),
    "thinking, nested": ("", "<think>", ""),
    "thinking, cut off": ("", "<think ", ""),
    "thinking, side by side": ("", "a<think></think>", ""),
    "VCP start markers": ("", VCP_START, ""),
    "VCP values that stay open": (VCP_START, "a:「始」", VCP_END),
    "VCP fields": (VCP_START + NAME, "a:「始」b「末」", VCP_END),
    "VCP keys of one letter each": (VCP_START + NAME, "a", ":「始」b「末」" + VCP_END),
    "VCP escapes in escapes": (VCP_START + "a:「始ESCAPE」", "「始ESCAPE」", VCP_END),
    "VCP spaces before a value": (VCP_START, " :", "「始」b「末」" + VCP_END),
    "VCP blocks": ("", VCP_START + NAME + VCP_END, ""),
}


def hostile_text(family: tuple[str, str, str], size: int) -> str:
    """About `size` bytes in UTF-8."""
    before, unit, after = family
    rest = size - len((before + after).encode())
    return before + unit * max(1, rest // len(unit.encode())) + after


def commanded(size: int) -> tuple[str, str]:
    """A valid call of about `size` bytes as a model writes it, and its JSON alone."""
    fact = {
        "content": 'Mira keeps the "blue" key under the third pot — since spring.',
        "tags": ["home", "key"],
        "at": 3.5,
    }
    count = max(1, (size - 120) // (len(json.dumps(fact, ensure_ascii=False).encode()) + 2))
    payload = json.dumps({"action": "create", "parameters": {"facts": [fact] * count}}, ensure_ascii=False)
    return f"I will note that.\n[[ABP_TOOL:manage_memory]]\n{payload}\n[[END_ABP_TOOL]]\n", payload


def seconds(work: Callable[[], object], repeats: int) -> float:
    """The shortest of several runs, in processor time of this process."""
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return min(times)


def _print_ratios(sizes: list[int], repeats: int) -> None:
    print("| payload | json.loads | sound call | per KiB | ratio | call to repair | per KiB | ratio |")
    print("| --- |" + " --- |" * 7)
    for size in sorted({1, 4, 16, *sizes}):
        text, payload = commanded(min(size * 1024, TEXT_BYTES_MAX))
        broken = text.replace("}}\n[[END", "},}\n[[END")
        again = max(repeats, 2_000 // size)
        floor = seconds(lambda payload=payload: json.loads(payload), again)  # type: ignore[misc]
        sound = seconds(lambda text=text: parse_tool_calls(text), again)  # type: ignore[misc]
        repaired = seconds(lambda text=broken: parse_tool_calls(text), again)  # type: ignore[misc]
        figures = " | ".join(_figures(taken, size, floor) for taken in (sound, repaired))
        print(f"| {size} KiB | {floor * 1e3:.3f} ms | {figures} |", flush=True)


def _figures(taken: float, size: int, floor: float) -> str:
    return f"{taken * 1e3:.3f} ms | {taken / size * 1e6:.1f} µs | {taken / floor:.1f}"


def _print_growth(sizes: list[int], repeats: int) -> None:
    print("\n| hostile text | " + " | ".join(f"{size} KiB" for size in sizes) + " | largest t(2n)/t(n) |")
    print("| --- |" + " --- |" * (len(sizes) + 1))
    for name, family in HOSTILE.items():
        texts = [hostile_text(family, size * 1024) for size in sizes]
        times = [seconds(lambda text=text: parse_tool_calls(text), repeats) for text in texts]  # type: ignore[misc]
        growth = max(later / earlier for earlier, later in pairwise(times))
        print(
            f"| {name} | " + " | ".join(f"{taken * 1e3:.1f} ms" for taken in times) + f" | {growth:.2f} |", flush=True
        )


def main() -> None:
    """Prints both tables."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument(
        "--kibibytes", type=int, nargs="+", default=[64, 128, 256, 512, 1024], help="sizes, doubling"
    )
    arguments.add_argument("--repeats", type=int, default=3)
    options = arguments.parse_args()
    print(machine.describe() + "\n")
    _print_ratios(options.kibibytes, options.repeats)
    _print_growth(options.kibibytes, options.repeats)


if __name__ == "__main__":
    main()
