"""Kernels of a model compiled side by side."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import TypeVar

from host.errors import BuildError
from host.execution.cores import usable_cores

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
        names: of the kernels; the result keeps their order. Those that take work to find are compiled while
            the next ones are found.
        compile_one: works outside of the interpreter lock for the most part.
        progress: receives the number of kernels that are done, and of those that are found so far.
        workers: threads; the machine's usable cores if None.
    """
    found: list[str] = []
    begun: dict[Future[Kernel], str] = {}
    made: dict[str, Kernel] = {}

    def collect(future: Future[Kernel]) -> None:
        name = begun.pop(future)
        made[name] = future.result()
        if progress is not None:
            progress(len(made), len(found), name)

    with ThreadPoolExecutor(workers or usable_cores(), thread_name_prefix="build") as pool:
        try:
            for name in names:
                found.append(name)
                begun[pool.submit(compile_one, name)] = name
                # A kernel that does not compile ends the search for others.
                for future in [one for one in begun if one.done()]:
                    collect(future)
            for future in as_completed(tuple(begun)):
                collect(future)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return {name: made[name] for name in found}


def compiled_with_defaults(
    names: Iterable[str],
    given: Collection[str],
    compile_given: Callable[[str], Kernel],
    compile_default: Callable[[str], Kernel],
    progress: Progress | None,
    workers: int | None,
) -> tuple[dict[str, Kernel], dict[str, str]]:
    """Kernels of given schedules, and of default ones where none is given or the given one does not compile.

    Args:
        names: as `compiled_in_threads`.
        given: names of the kernels that have a schedule.
        compile_given: compiles the given schedule of one of them.
        compile_default: compiles the default schedule.
        progress: as `compiled_in_threads`.
        workers: as `compiled_in_threads`.

    Returns:
        The kernels by name, and the reasons why given schedules were not used.
    """
    refused: dict[str, str] = {}

    def compile_one(name: str) -> Kernel:
        if name in given:
            try:
                return compile_given(name)
            except BuildError as error:
                refused[name] = str(error)
        return compile_default(name)

    kernels = compiled_in_threads(names, compile_one, progress, workers)
    return kernels, dict(sorted(refused.items()))
