"""Ports that no other program is given, while a server that is restarted lets go of its own."""

import socket
import weakref


class HeldPort:
    """A free port of the loopback, for one server that goes and comes back, for as long as this object is there.

    The socket is bound and never listens: the system gives the port to no one else, and a server that names it has it.
    """

    def __init__(self) -> None:
        held = socket.socket()
        weakref.finalize(self, held.close)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        self.number: int = held.getsockname()[1]
        self.address = f"127.0.0.1:{self.number}"
