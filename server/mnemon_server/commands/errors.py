"""How a command ends if something is wrong."""

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from mnemon.shared.terminal import echo

from mnemon_server.domain.errors import MnemonError


@contextmanager
def explained(code: int = 1) -> Iterator[None]:
    """Prints an error of the product, or of the operating system, as a sentence, and ends the command with `code`."""
    try:
        yield
    except MnemonError as error:
        said = str(error)
    except OSError as error:
        if error.errno == errno.EPIPE:  # The reader of the output has seen enough.
            raise
        from mnemon_server.engines.private import refused

        said = str(refused(error, remedy="choose another path"))
    else:
        return
    echo(f"mnemon-server: {said}", err=True)
    sys.exit(code)
