"""The profile of calls counts what threads do, and not that they wait."""

from tests.bench.profile_calls import Profile

SERVER = "/srv/mnemon_server"
STACKS = (
    f"thread (0x1): MainThread;run (asyncio/runners.py:1);read ({SERVER}/transport/codec.py:2) 30",
    f"thread (0x2): writer_0;_worker (concurrent/futures/thread.py:81);write ({SERVER}/engines/sqlite/writer.py:9) 10",
    "thread (0x2): writer_0;_worker (concurrent/futures/thread.py:81) 500",
    "thread (0x3): Thread-1;Thread.run (threading.py:982) 500",
    "thread (0x4): Thread-2;wait (threading.py:324) 500",
    f"thread (0x5): Thread-3;run (threading.py:982);Writer._gather ({SERVER}/engines/sqlite/writer.py:140) 500",
)


def test_threads_that_wait_for_work_are_left_out() -> None:
    profile = Profile(STACKS)
    assert profile.total == 40
    assert dict(profile.threads) == {"MainThread": 30, "writer": 10}
    assert dict(profile.parts) == {"transport/codec.py": 30, "engines/sqlite": 10}


def test_a_function_that_works_below_a_wait_counts() -> None:
    [(frame, count)] = Profile(STACKS[1:2]).own.items()
    assert (str(frame), count) == ("`write`, engines/sqlite/writer.py", 10)
