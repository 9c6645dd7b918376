"""Returns freed memory from the C library to the system."""

import ctypes


def release_free_memory() -> None:
    """Returns freed memory to the system, if the C library supports it (glibc).

    Otherwise it keeps up to 64 MB of freed arrays for each thread that allocated some.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
