"""LangGraph and LangChain on Mnemon: a store, and the two memory tools; installed with `mnemon-client[langgraph]`."""

try:
    import langgraph.store.base  # noqa: F401 - whether it is there
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in ("langgraph", "langchain_core"):
        raise
    raise ImportError(
        "mnemon.langgraph needs langgraph; install it with: pip install 'mnemon-client[langgraph]'"
    ) from error

from mnemon.langgraph._async_store import AsyncMnemonStore
from mnemon.langgraph._batches import IndexFields
from mnemon.langgraph._sync_store import MnemonStore
from mnemon.langgraph._tools import MemoryToolError, create_manage_memory_tool, create_search_memory_tool

__all__ = [
    "AsyncMnemonStore",
    "IndexFields",
    "MemoryToolError",
    "MnemonStore",
    "create_manage_memory_tool",
    "create_search_memory_tool",
]
