"""The machine that a measurement ran on."""

import os
import platform
from datetime import UTC, datetime
from pathlib import Path


def describe() -> str:
    """Date, processor, cores, system and Python, in one line."""
    today = datetime.now(UTC).date().isoformat()
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    return f"{today}; {_processor()}, {_cores()} cores; {system}"


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or "unknown processor")


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
