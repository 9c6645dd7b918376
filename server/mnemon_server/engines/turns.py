"""The turns of threads that work whenever they are woken, until they are closed."""

from threading import Event


def next_turn(wake: Event, closing: Event) -> bool:
    """Begins a turn: clears `wake`, and returns False if the thread is to end.

    In this order. Between a check of `closing` and the clearing, a close would be lost, and its caller would wait for a
    thread that sleeps.
    """
    wake.clear()
    return not closing.is_set()
