"""Names, numbers and times of the protocols (`protocol.json`); the native executor's build reads them too."""

from __future__ import annotations

import json
import os
from typing import NamedTuple, Tuple


class WireProtocol(NamedTuple):
    """Of frames between the host, the agent and its executors.

    Attributes:
        schema: which both ends name in the first request.
        keep_alive_idle_s: silence after which a connection's peer is asked whether it is there.
        keep_alive_interval_s: between two such questions.
        keep_alive_probes: unanswered ones after which the peer is gone.
        exhausted_s: to wait where a process can open no more connections.
        leaving_s: to wait for a client that has left and whose end is not noticed yet.
    """

    schema: str
    keep_alive_idle_s: int
    keep_alive_interval_s: int
    keep_alive_probes: int
    exhausted_s: float
    leaving_s: float


class RpcProtocol(NamedTuple):
    """Of TVM's RPC (tvm/src/runtime/rpc/rpc_socket_impl.cc).

    Attributes:
        magic: the first four bytes, least significant first.
        server: what the server calls itself.
    """

    magic: int
    server: str


class BundleFormat(NamedTuple):
    """Of a bundle and of what decides whether it runs.

    Attributes:
        schema: of the manifest.
        state_schema: of the manifest of a model with state, which runtimes before it cannot run.
        tokenizer: file of a language model's tokenizer.
        manifest: its file.
        signature: file of the signature.
        parameters: file of the weights.
        signature_schema: of the signature.
        trust_schema: of the list of trusted keys.
        trust: its file.
        backends: engines that a bundle is for, which come with it or with the agent.
        board_backends: those that come with the board's system; behind a name, how it runs.
        verified_schema: of a file of the memory of verified files.
        settled_s: age from which a file's time is believed: coarser than any file system's clock.
    """

    schema: str
    state_schema: str
    tokenizer: str
    manifest: str
    signature: str
    parameters: str
    signature_schema: str
    trust_schema: str
    trust: str
    backends: Tuple[str, ...]
    board_backends: Tuple[str, ...]
    verified_schema: str
    settled_s: float


class Protocol(NamedTuple):
    """All of it, a field a section of the file."""

    wire: WireProtocol
    rpc: RpcProtocol
    bundle: BundleFormat


def _read() -> Protocol:
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "protocol.json")
    with open(path, encoding="utf-8") as file:
        data = json.load(file)
    for name in ("backends", "board_backends"):
        data["bundle"][name] = tuple(data["bundle"][name])
    return Protocol(WireProtocol(**data["wire"]), RpcProtocol(**data["rpc"]), BundleFormat(**data["bundle"]))


PROTOCOL = _read()
