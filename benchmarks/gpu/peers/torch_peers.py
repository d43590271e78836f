"""What NVIDIA's libraries take for the same layers and models: torch with cuBLAS and cuDNN, and its compiler.

All calls are captured into CUDA graphs, as ours are.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from benchmarks.gpu.driver import SAMPLE_S, SAMPLES, DriverError
from benchmarks.gpu.figures import Item
from benchmarks.gpu.kit import Kit

_WARMUP, _MOST_CALLS, _LATENCIES = 3, 400, 200


def need_gpu() -> None:
    """Raise DriverError where torch has no GPU."""
    if not torch.cuda.is_available():
        raise DriverError(f"torch {torch.__version__} sees no GPU")
    torch.backends.cudnn.benchmark = True


def layer(kit: Kit, name: str) -> Item:
    """The best of a library's ways to compute a layer: weights as they are, and transposed."""
    need_gpu()
    sizes = kit.tasks[name]["sizes"]
    found = {}
    with torch.no_grad():
        for way, call in layer_calls(sizes, torch.device("cuda")).items():
            found[way] = graph_seconds(call)
    best = min(found, key=lambda way: statistics.median(found[way]))
    return {"seconds": statistics.median(found[best]), "way": best, "samples": found}


def layer_calls(sizes: Mapping[str, Any], device: torch.device) -> dict[str, Callable[[], torch.Tensor]]:
    """Calls that compute a layer, by what they are called here."""

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=device).to(torch.float16)

    if sizes["kind"] == "product":
        left, right = drawn(sizes["rows"], sizes["depth"]), drawn(sizes["depth"], sizes["columns"])
        turned = right.t().contiguous()
        return {
            "matmul": lambda: torch.matmul(left, right),
            "linear": lambda: torch.nn.functional.linear(left, turned),
        }
    if sizes["kind"] == "attention":
        # Products of all heads leave them between rows and elements, for torch as for ours.
        heads, depth = sizes["heads"], sizes["depth"]
        query = drawn(1, sizes["rows"], heads, depth).transpose(1, 2)
        key, value = (drawn(1, sizes["columns"], heads, depth).transpose(1, 2) for _ in range(2))
        attend = torch.nn.functional.scaled_dot_product_attention
        return {"sdpa": lambda: attend(query, key, value, is_causal=sizes["causal"])}
    last = torch.channels_last
    image = drawn(1, sizes["depth"], sizes["size"], sizes["size"]).contiguous(memory_format=last)
    kernel = sizes["kernel"]
    weights = drawn(sizes["columns"], sizes["depth"], kernel, kernel).contiguous(memory_format=last)
    stride, pad = sizes["stride"], kernel // 2
    return {"conv2d": lambda: torch.nn.functional.conv2d(image, weights, stride=stride, padding=pad)}


def model(name: str, way: str) -> Item:
    """One model in halves at batch 1, in one of `TORCH_WAYS`."""
    need_gpu()
    module, inputs = halved(name, torch.device("cuda"))
    begin = time.monotonic()
    with torch.no_grad():
        call: Callable[[], object]
        if way == "graph":
            call, _ = captured(partial(module, *inputs), 1)
        else:
            call = partial(torch.compile(module, mode=way), *inputs)
        for _ in range(_WARMUP):
            call()
        torch.cuda.synchronize()
        prepared = time.monotonic() - begin
        latencies = []
        for _ in range(_LATENCIES):
            start = time.perf_counter()
            call()
            torch.cuda.synchronize()
            latencies.append(time.perf_counter() - start)
    return {"latency_s": statistics.median(latencies), "samples": latencies, "prepare_s": prepared}


def halved(name: str, device: torch.device) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """A model of the zoo in halves, and its inputs; images with channels last."""
    from research.models.zoo import make

    module, inputs = make(name)
    placed = []
    for one in inputs:
        one = one.to(device, torch.float16) if one.is_floating_point() else one.to(device)
        placed.append(one.contiguous(memory_format=torch.channels_last) if one.dim() == 4 else one)
    module = module.to(device, torch.float16)
    return module.to(memory_format=torch.channels_last), tuple(placed)


def captured(call: Callable[[], object], calls: int) -> tuple[Callable[[], None], torch.cuda.CUDAGraph]:
    """A function that replays so many calls, and the graph, whose memory it uses."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(_WARMUP):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    return graph.replay, graph


def graph_seconds(call: Callable[[], object]) -> list[float]:
    """Seconds of one call by the GPU's clock, in several samples, inside of one graph."""
    replay, graph = captured(call, 1)
    first = _elapsed(replay)
    del graph, replay
    calls = max(1, min(_MOST_CALLS, math.ceil(SAMPLE_S / max(first, 1e-6))))
    replay, graph = captured(call, calls)
    replay()
    found = [_elapsed(replay) / calls for _ in range(SAMPLES)]
    del graph
    return found


def _elapsed(work: Callable[[], None]) -> float:
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    work()
    stop.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(stop)) * 1e-3
