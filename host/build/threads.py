"""Kernels of a model compiled side by side."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

# Called with kernels done, kernels in all and the name of the one that was done last.
Progress = Callable[[int, int, str], None]
Kernel = TypeVar("Kernel")


def compiled_in_threads(
    names: Iterable[str],
    compile_one: Callable[[str], Kernel],
    progress: Progress | None,
    workers: int | None,
) -> dict[str, Kernel]:
    """What `compile_one` makes of every name; what raises ends it all, with nothing left running.

    Args:
        names: of the kernels; the result keeps their order.
        compile_one: works outside of the interpreter lock for the most part.
        progress: told of every kernel that is done.
        workers: threads; the machine's usable cores if None.
    """
    order = list(names)
    made: dict[str, Kernel] = {}
    with ThreadPoolExecutor(workers or len(os.sched_getaffinity(0)), thread_name_prefix="build") as pool:
        futures = {pool.submit(compile_one, name): name for name in order}
        try:
            for future in as_completed(futures):
                name = futures[future]
                made[name] = future.result()
                if progress is not None:
                    progress(len(made), len(futures), name)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return {name: made[name] for name in order}
