"""Opens a graph on ONNX Runtime, with the settings that are fastest for many small runs."""

import re
from pathlib import Path

import onnxruntime as ort

_ERROR_SEVERITY = 3
_CPU_INFO = Path("/proc/cpuinfo")
_BYTE_PRODUCT_FLAGS = frozenset({"avx512_vnni", "avx_vnni"})
"""Linux's names of the instructions that sum products of bytes in 32 bits."""

_SLOW_FUSION = "SkipLayerNormFusion"
"""Replaces nodes by one that takes twice as long as they do together."""


def open_session(graph: Path) -> ort.InferenceSession:
    """A session whose runs have one thread each, and may be concurrent. Raises exceptions of ONNX Runtime."""
    options = ort.SessionOptions()
    options.log_severity_level = _ERROR_SEVERITY
    if not sums_byte_products_exactly():
        options.add_session_config_entry("session.x64quantprecision", "1")
    # One thread for each run, and several concurrent runs: threads that share a run would synchronise at every
    # operator.
    options.intra_op_num_threads = 1
    return ort.InferenceSession(
        str(graph), options, providers=["CPUExecutionProvider"], disabled_optimizers=[_SLOW_FUSION]
    )


def sums_byte_products_exactly(cpu_info: Path = _CPU_INFO) -> bool:
    """Whether the processor is known to sum products of bytes in 32 bits.

    Other x86-64 processors saturate the sum of two products at 16 bits, unless a setting makes ONNX Runtime avoid that.
    The setting slows products down by a third, also on processors that do not need it.
    """
    try:
        flags = re.search(r"^flags\s*:(.*)$", cpu_info.read_text("ascii", "replace"), re.MULTILINE)
    except OSError:
        return False
    return flags is not None and not _BYTE_PRODUCT_FLAGS.isdisjoint(flags[1].split())
