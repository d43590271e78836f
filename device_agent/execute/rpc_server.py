"""TVM RPC for the host: a handshake with a secret key, then the runtime's own server loop.

The first four bytes of a connection distinguish RPC from frames, because 0xff271 in little-endian order is
not a valid length of a frame's header. Wire format of the handshake: tvm/src/runtime/rpc/rpc_socket_impl.cc.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import socket
import struct
from typing import Any, Callable, Mapping

from device_agent.contract.limits import LIMITS
from device_agent.contract.protocol import PROTOCOL
from device_agent.errors import AgentError
from device_agent.execute import ffi
from device_agent.store.uploads import full_disk

_MAGIC = PROTOCOL.rpc.magic
_NAME = PROTOCOL.rpc.server.encode()
# A library that contains cubins has this text in it, after the length of the text.
_CUBINS = struct.pack("<Q", 5) + b"cubin"
# The three answers to a handshake.
WELCOME = struct.pack("<ii", _MAGIC, len(_NAME)) + _NAME
DUPLICATE = struct.pack("<i", _MAGIC + 1)
MISMATCH = struct.pack("<i", _MAGIC + 2)


def missing(data: bytes) -> int:
    """The number of bytes still missing from a handshake; 0 if it is complete or cannot become valid."""
    if len(data) < 8:
        return 8 - len(data)
    (length,) = struct.unpack("<i", data[4:8])
    return 8 + int(length) - len(data) if 0 < length <= LIMITS.wire.rpc_key_bytes else 0


def knows(data: bytes, key: str) -> bool:
    """Whether the sender of a complete handshake knows the session's secret."""
    given = data[8:].decode("utf-8", "replace").split(" ")[0]
    return hmac.compare_digest(given.encode(), ("client:" + key).encode())


def register(workdir: str, functions: Mapping[str, Callable[..., Any]]) -> None:
    """Registers the functions that the runtime's server calls, and the agent's own.

    Args:
        workdir: folder of uploads and modules; names outside this folder are refused.
        functions: the agent's own functions by name.
    """
    runtime = ffi.load_runtime()

    def work_path(name: str) -> str:
        path = os.path.realpath(os.path.join(workdir, str(name)))
        if os.path.dirname(path) != os.path.realpath(workdir):
            raise AgentError("denied", "%s lies outside the session's folder" % name)
        return path

    def load_module(name: str) -> Any:
        path = work_path(name)
        with open(path, "rb") as file:
            if _CUBINS in file.read():
                ffi.load_cuda()
        # Not kept alive, because a search loads thousands of kernels, and none of them creates objects.
        return runtime.load_module(path, keep_module_alive=False)

    def upload(name: str, data: bytes) -> None:
        # TVM's own upload leaves a truncated file on a full disk without an error.
        path = work_path(name)
        try:
            with open(path, "wb", buffering=0) as file:
                left = memoryview(data)
                while left:
                    left = left[file.write(left) :]
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise full_disk(error, os.path.basename(path)) from error

    served = {
        "tvm.rpc.server.upload": upload,
        "tvm.rpc.server.workpath": work_path,
        "tvm.rpc.server.load_module": load_module,
    }
    for name, function in {**served, **functions}.items():
        runtime.register_global_func(name, function, override=True)


def serve(connection: socket.socket, set_busy: Callable[[bool], None]) -> None:
    """Serves RPC until the client closes the connection.

    Args:
        connection: connection after the handshake.
        set_busy: called with True when a request has arrived and False when the server waits for the next.
    """

    def receive(count: int) -> bytes:
        set_busy(False)
        try:
            data = connection.recv(min(count, 1 << 20))
        except OSError:
            data = b""
        set_busy(bool(data))
        return data

    def transmit(data: Any) -> int:
        connection.sendall(data)
        return len(data)

    try:
        ffi.load_runtime().get_global_func("rpc.ServerLoop")(transmit, receive)
    finally:
        set_busy(False)
