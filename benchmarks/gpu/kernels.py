"""Programs of single tasks on the GPU: whether they compute right, and how long they take."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from benchmarks.gpu.driver import Driver, Launch, Sampler, median
from benchmarks.gpu.figures import Item
from benchmarks.gpu.kit import Kit, drawn

# Largest difference from single precision, as a share of the largest result: of halves, and of sums of them
# in another order.
TOLERANCE = 4e-3


class WrongResult(Exception):
    """A program computes something else; the message says by how much."""


def peak(driver: Driver, kit: Kit, name: str) -> Item:
    """Operations a second of a loop over products in registers alone, the most that `mma.sync` reaches."""
    entry = kit.plan["peaks"][name]
    address = driver.uploaded(np.zeros(int(entry["result_bytes"]), "uint8"))
    try:
        with _loaded(driver, kit, entry, [address]) as launches:
            seconds = driver.seconds(launches)
    finally:
        driver.release(address)
    return {"operations_per_s": entry["operations"] / min(seconds), "seconds": seconds}


def first_program(driver: Driver, kit: Kit, name: str) -> Item:
    """Checks and times the first program of a task that a library is compared with."""
    task = kit.tasks[name]
    arrays = drawn(task)
    wanted = expected(task["sizes"], arrays)
    with _placed(driver, arrays) as addresses:
        entry = task["programs"][0]
        with _loaded(driver, kit, entry, addresses) as launches:
            driver.launch(launches)
            driver.wait()
            difference = _difference(driver.downloaded(addresses[-1], arrays[-1]), wanted)
            seconds = driver.seconds(launches)
    operations = task["operations"]
    return {
        "seconds": median(seconds),
        "samples": seconds,
        "difference": difference,
        "operations_per_s": operations / median(seconds),
    } | {key: entry[key] for key in ("rule", "decisions", "estimate_s")}


def all_programs(driver: Driver, kit: Kit, name: str) -> Item:
    """Times every program of a task, and compares its results with those of the first one.

    The programs are loaded side by side. Samples are taken in rounds, each of which has one of every program,
    so that a clock that changes meets all programs alike; every other round goes backwards.
    """
    task = kit.tasks[name]
    arrays = drawn(task)
    results: list[Item] = []
    samplers: list[tuple[Item, Sampler]] = []
    first: np.ndarray | None = None
    with ExitStack() as stack:
        addresses = stack.enter_context(_placed(driver, arrays))
        for entry in task["programs"]:
            launches = stack.enter_context(_loaded(driver, kit, entry, addresses))
            driver.launch(launches)
            driver.wait()
            found = driver.downloaded(addresses[-1], arrays[-1])
            first = found.astype("float64") if first is None else first
            try:
                results.append({"seconds": [], "difference": _difference(found, first)})
            except WrongResult as error:
                results.append({"error": str(error)})
                continue
            samplers.append((results[-1], stack.enter_context(driver.sampled(launches))))
        for number in range(max((one.samples for _, one in samplers), default=0)):
            for result, sampler in samplers if number % 2 else reversed(samplers):
                if number < sampler.samples:
                    result["seconds"].append(sampler.take())
    return {"task": task["task"], "programs": results}


def expected(sizes: Mapping[str, Any], arrays: Sequence[np.ndarray]) -> np.ndarray:
    """What a product, a convolution or an attention of halves gives in single precision."""
    if sizes["kind"] == "attention":
        return _attended(sizes, *(array.astype("float32") for array in arrays[:3]))
    left, right = (array.astype("float32") for array in arrays[:2])
    if sizes["kind"] == "product":
        product: np.ndarray = left @ right.transpose(1, 0, 2).reshape(sizes["depth"], sizes["columns"])
        return product
    return _convolved(sizes, left, right)


def _attended(sizes: Mapping[str, Any], query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Attention over [1, rows, heads, elements], a head at a time."""
    found = np.empty((*query.shape[:-1], value.shape[-1]), "float32")
    hidden = np.arange(sizes["columns"])[None] > np.arange(sizes["rows"])[:, None]
    for head in range(sizes["heads"]):
        scores = query[0, :, head] @ key[0, :, head].T * np.float32(sizes["depth"] ** -0.5)
        if sizes["causal"]:
            scores[hidden] = -np.inf
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        found[0, :, head] = powers @ value[0, :, head] / powers.sum(-1, keepdims=True)
    return found


def _convolved(sizes: Mapping[str, Any], image: np.ndarray, packed: np.ndarray) -> np.ndarray:
    """A convolution with a ReLU: the sum of one product for each place of the kernel."""
    kernel, stride, size = sizes["kernel"], sizes["stride"], sizes["size"]
    pad = kernel // 2
    weights = packed.transpose(1, 2, 3, 0, 4).reshape(kernel, kernel, sizes["depth"], sizes["columns"])
    padded = np.pad(image, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    out = (size + 2 * pad - kernel) // stride + 1
    last = stride * (out - 1) + 1
    total = np.zeros((1, out, out, sizes["columns"]), "float32")
    for row in range(kernel):
        for column in range(kernel):
            total += (
                padded[:, row : row + last : stride, column : column + last : stride] @ weights[row, column]
            )
    return np.maximum(total, 0.0)


def _difference(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference as a share of the largest number.

    Raises:
        WrongResult: it is too large, or something is no number.
    """
    finite = np.isfinite(wanted)
    largest = float(np.abs(wanted[finite]).max(initial=0.0)) or 1.0
    number = found.astype("float64")
    # Masks hold infinities, which have no difference.
    same = np.array_equal(number[~finite], wanted[~finite], equal_nan=True)
    share = float(np.abs(number[finite] - wanted[finite]).max(initial=0.0)) / largest if same else math.inf
    if not share <= TOLERANCE:
        raise WrongResult(f"off by {share:.3g} of the largest result, allowed are {TOLERANCE}")
    return share


@contextmanager
def _placed(driver: Driver, arrays: Sequence[np.ndarray]) -> Iterator[list[int]]:
    """Arrays in the memory of the GPU, as long as they are needed."""
    addresses: list[int] = []
    try:
        for array in arrays:
            addresses.append(driver.uploaded(array))
        yield addresses
    finally:
        for address in addresses:
            driver.release(address)


@contextmanager
def _loaded(
    driver: Driver, kit: Kit, entry: Mapping[str, Any], addresses: Sequence[int]
) -> Iterator[list[Launch]]:
    """The launches of a program with its arguments."""
    module = driver.module(kit.cubin(entry["cubin"]))
    own: list[int] = []
    try:
        for size in entry.get("memory_bytes", ()):
            own.append(driver.uploaded(np.zeros(size, "uint8")))
        placed = [*addresses, *own]
        yield [
            Launch(
                driver.function(module, one["entry"]),
                tuple(one["blocks"]),
                tuple(one["threads"]),
                tuple(placed[number] for number in one["arguments"]),
                int(one.get("shared_bytes", 0)),
            )
            for one in entry["launches"]
        ]
    finally:
        for address in own:
            driver.release(address)
        driver.unload(module)
