"""Lets atheris choose the texts that are parsed for tool calls, guided by the branches that they reach.

make fuzz TEXTS=1000000
"""

import argparse
import sys

import atheris  # in no extra, because it is built for few versions of Python

with atheris.instrument_imports(include=["mnemon_server", "json_repair"]):
    from tests.support.tool_call_fuzzing import OPTIONS, PIECES, check


def _read(data: bytes) -> None:
    chosen = atheris.FuzzedDataProvider(data)
    options = OPTIONS[chosen.ConsumeIntInRange(0, len(OPTIONS) - 1)]
    pieces = []
    while chosen.remaining_bytes():
        index = chosen.ConsumeIntInRange(0, len(PIECES) + 5)
        pieces.append(PIECES[index] if index < len(PIECES) else chosen.ConsumeUnicodeNoSurrogates(8))
    check("".join(pieces), options)


def main() -> None:
    """Runs until all texts are parsed or one of them fails. The failing text is then written to a file."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--texts", type=int, default=20_000)
    texts = arguments.parse_args().texts
    atheris.Setup([sys.argv[0], f"-runs={texts}", "-max_len=400", "-timeout=20"], _read)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
