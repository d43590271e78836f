"""A native executor started by hand: what the daemon says to it, and frames over its port.

`benchmarks.gpu` uses it on machines that have NumPy and nothing else.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from device_agent.wire import frames

KEY = "k" * 32


def read_with(command: Sequence[str], kind: str, inputs: Sequence[bytes]) -> list[str]:
    """What an executable's reader of a kind says of each input: "ok", or "refused" and the reason.

    Args:
        command: the executable, an emulator before it.
        kind: of `device_agent/native/executor/reading.h`.
        inputs: to be read.
    """
    spoken = b"".join(struct.pack(">I", len(one)) + one for one in inputs)
    done = subprocess.run([*command, "--read", kind], input=spoken, capture_output=True, check=True)
    answers = done.stdout.decode().splitlines()
    assert len(answers) == len(inputs), (len(answers), answers[-1:], done.stderr)
    return answers


class Executor:
    """One process; a context manager.

    Args:
        command: the executable, an emulator before it.
        folder: of its session, made if need be.
        specification: fields in place of the usual ones; None leaves one out. The file of trusted keys is by
            default one that trusts the tests' own key.
        start_s: longest wait for its first line.

    Attributes:
        announced: its first line.
    """

    def __init__(
        self, command: Sequence[str], folder: Path, start_s: float = 30.0, **specification: Any
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        fields = {
            "engine": "tvm",
            "threads": 1,
            "key": KEY,
            "workdir": str(folder),
            "parent_pid": os.getpid(),
            "system_root": "/",
        }
        if "trust_file" not in specification:
            from tests.signing import trust  # here, because it brings the host's cryptography

            specification["trust_file"] = str(folder.parent / "keys" / "trust.json")
            trust(specification["trust_file"])
        fields.update(specification)
        environment = dict(os.environ, TVM_NUM_THREADS="1", TVM_BIND_THREADS="0")
        self._process = subprocess.Popen(
            [*command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        self.pid = self._process.pid
        self._connection: socket.socket | None = None
        assert self._process.stdin is not None and self._process.stdout is not None
        spoken = {name: value for name, value in fields.items() if value is not None}
        self._process.stdin.write((json.dumps(spoken) + "\n").encode())
        self._process.stdin.close()
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            assert selector.select(start_s), "the executor says nothing"
        self.announced: dict[str, Any] = json.loads(self._process.stdout.readline() or b"{}")

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.announced["port"])

    def ask(
        self, command: str, arrays: Sequence[np.ndarray] | None = None, **fields: Any
    ) -> tuple[dict[str, Any], list[np.ndarray]]:
        """Send one request and return the reply's header and tensors."""
        if self._connection is None:
            self._connection = socket.create_connection(("127.0.0.1", self.port))
            assert self._exchange({"command": "hello", "schema": frames.SCHEMA, "secret": KEY})[0]["ok"]
        header = {"command": command, **fields}
        if arrays is not None:
            header["tensors"] = [{"shape": list(a.shape), "dtype": str(a.dtype)} for a in arrays]
        return self._exchange(header, [np.ascontiguousarray(a).tobytes() for a in arrays or ()])

    def greedy(self, bundle: Path, prompt: Sequence[int], count: int) -> list[int]:
        """The tokens that a language model continues a prompt with, each by a step."""
        reply, _ = self.ask("load", path=str(bundle))
        assert reply["ok"], reply
        tokens = list(prompt)
        for place in range(len(prompt) + count - 1):
            inputs = (np.array([tokens[place]], np.int32), np.array([place], np.int32))
            reply, outputs = self.ask("run", inputs)
            assert reply["ok"], reply
            if place >= len(prompt) - 1:
                tokens.append(int(outputs[0].argmax()))
        return tokens[len(prompt) :]

    def _exchange(
        self, header: dict[str, Any], blobs: Sequence[bytes] = ()
    ) -> tuple[dict[str, Any], list[np.ndarray]]:
        assert self._connection is not None
        frames.send(self._connection, header, blobs)
        reply = frames.receive_header(self._connection)
        blob = frames.receive_exact(self._connection, int(reply["blob_bytes"]))
        parts = frames.split_tensors(reply.get("tensors", []), blob)
        return reply, [np.frombuffer(p.data, p.dtype).reshape(p.shape) for p in parts]

    def wait(self, seconds: float = 30.0) -> int:
        """How it ends by itself."""
        return self._process.wait(seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            self._connection.close()
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
