"""Keeps garbage collection from stopping everybody at once.

A full collection looks at every object there is: with ten thousand connections it takes a second,
in which nobody is answered. So what has lived through one is set aside, and the next ones look at
what is new alone. Now and then one looks at everything again, for what has died meanwhile.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

COMPLETE: Final = 50  # one full collection in so many looks at everything


@contextmanager
def tuned_gc() -> Generator[None]:
    """While the block lasts."""
    full = 0

    def watch(phase: str, info: dict[str, Any]) -> None:
        nonlocal full
        if info["generation"] < 2:
            return
        if phase == "start":
            full += 1
            if full % COMPLETE == 0:
                gc.unfreeze()
        else:
            gc.freeze()

    gc.callbacks.append(watch)
    gc.collect()
    try:
        yield
    finally:
        gc.callbacks.remove(watch)
        gc.unfreeze()
