"""Ids are UUIDs, and no two are the same, in forked processes either."""

import subprocess
import sys
from uuid import UUID

from mnemon_server.services.writing.writes import new_id

FORKING = """
import os
from mnemon_server.services.writing.writes import new_id
def show():
    os.write(1, f"{new_id()}\\n".encode())  # one write: lines of both stay apart
show()
child = os.fork()
show()
if child:
    os.waitpid(child, 0)
"""


def test_ids_are_different_random_uuids_in_their_usual_form() -> None:
    ids = [new_id() for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert all(str(UUID(one)) == one and UUID(one).version == 4 for one in ids)


def test_a_forked_process_makes_other_ids() -> None:
    printed = subprocess.run([sys.executable, "-c", FORKING], check=True, capture_output=True, text=True).stdout
    assert len(set(printed.split())) == 3
