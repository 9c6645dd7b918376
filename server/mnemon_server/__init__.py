"""The Mnemon server: a gRPC server that gives AI agents a memory."""

import os

from mnemon.shared.version import __version__

# ONNX Runtime reports its use to Microsoft unless this is set before its first import. All modules that import it are
# below this package, so no process of ours gets there without passing here; and children inherit it.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

__all__ = ["__version__"]
