"""Small files and lines: tickets, trusted keys, what executors say, devices and boards."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from device_agent.contract.manifest import ContractError
from device_agent.contract.trust import FILE, TrustStore
from device_agent.errors import AgentError
from device_agent.serve.executor_process import ExecutorProcess, SessionOptions
from device_agent.serve.tickets import TicketStore
from device_agent.wire.shared_token import SharedToken
from host.devices.registry import Registry
from host.errors import EdgeError
from targets import files as board_files
from tests.fuzz.case import Case, Outcome, Tree, canaries, complaint
from tests.fuzz.corpus import texts as found
from tests.fuzz.mutate import TEXTS, grown, mangled, value, written

_KINDS = ("ticket", "token", "trust", "status", "devices", "board", "core")
_ENDED_S = 20.0


class Refusal(Exception):
    """What is refused, with the line that a person gets."""


class Texts:
    """The target: the first file's name is the kind of the case."""

    name = "texts"
    apart = False

    def open(self, place: Path) -> None:
        """A folder with what may be written to, and one that may not."""
        self._place = place
        (place / "outside").mkdir()
        os.environ["XDG_CONFIG_HOME"] = str(place / "work")
        os.chdir(place / "outside")
        self._tree = Tree(place / "outside")

    def close(self) -> None:
        """Nothing is left running."""

    def corpus(self) -> list[Case]:
        """Everything that was a fault once."""
        return found.cases()

    def case(self, seed: int) -> Case:
        """A changed one of some kind."""
        rng = Random(f"texts/{seed}")
        kind = rng.choice(_KINDS)
        return Case(f"{kind}-{seed}", {kind: _MADE[kind](rng)})

    def run(self, case: Case) -> Outcome:
        """Read it: a value, or one clear line."""
        work = self._place / "work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        (kind,) = case.files
        try:
            _READ[kind](case.main, work)
        except (EdgeError, ContractError, AgentError, board_files.BoardFileError, Refusal) as error:
            message = str(error)
            wrong = complaint(message)
            return Outcome("refused", message, wrong or self._tree.violation() or canaries(self._place))
        return Outcome("ok", violation=self._tree.violation() or canaries(self._place))


def _read_ticket(data: bytes, work: Path) -> None:
    """What lies in the folder of tickets under the name of one, whose holder comes."""
    store = TicketStore(str(work / "tickets"))
    (work / "tickets" / ("a" * 16)).write_bytes(data)
    assert store.pending in (True, False)
    store.admit("a" * 16 + "." + "b" * 64)


def _read_token(data: bytes, work: Path) -> None:
    """What a client says to be a ticket, or the secret."""
    store = TicketStore(str(work / "tickets"))
    store.issue()
    text = data.decode("utf-8", "surrogatepass") if _is_text(data) else data.decode("latin-1")
    for secret in (store, SharedToken("s" * 32)):
        try:
            secret.admit(text)
        except AgentError as error:
            assert error.kind == "denied", error
        else:
            raise AssertionError(f"{text!r} lets somebody in")
    raise Refusal("wrong secret")


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


def _read_trust(data: bytes, work: Path) -> None:
    path = work / FILE
    path.write_bytes(data)
    path.chmod(0o600)
    store = TrustStore(str(path))
    keys = store.read()
    # What is taken can be changed and written again.
    store.enrol("12" * 32, "somebody")
    assert {one.key for one in keys.keys} <= {one.key for one in store.read().keys}


def _read_status(data: bytes, work: Path) -> None:
    (work / "agent").mkdir()
    (work / "rpc").mkdir()
    (work / "said").write_bytes(data)
    # `cat` says what the case has, and ends then.
    terms = SessionOptions("tvm", 1, 60.0, 0, ["cat", str(work / "said")], "", [], "")
    process = ExecutorProcess(terms, str(work))
    try:
        until = time.monotonic() + _ENDED_S
        while process.read_status() and time.monotonic() < until:
            assert process.port in range(65536), process.port
            time.sleep(0.001)
        reason = process.reason
        refusal = process.refusal
    finally:
        process.end(None)
        process.status.close()
    if refusal is not None:
        raise refusal
    if reason is not None:
        raise Refusal(reason)


def _read_devices(data: bytes, work: Path) -> None:
    (work / "devices.toml").write_bytes(data)
    for entry in Registry(work / "devices.toml").entries().values():
        assert not entry.host.startswith("-") and not set(entry.host) & set(" ;`$\n\"'"), entry
        assert not set(entry.user) & set(" ;`$\n\"'"), entry


def _read_board(data: bytes, work: Path) -> None:
    path = work / "a_board.toml"
    path.write_bytes(data)
    board = board_files.load_board(path)
    board.resolve(board.describe())


def _read_core(data: bytes, work: Path) -> None:
    path = work / "a_core.toml"
    path.write_bytes(data)
    board_files.load_core(path)


_READ: dict[str, Callable[[bytes, Path], None]] = {
    "ticket": _read_ticket,
    "token": _read_token,
    "trust": _read_trust,
    "status": _read_status,
    "devices": _read_devices,
    "board": _read_board,
    "core": _read_core,
}


def _ticket(rng: Random) -> bytes:
    digest = hashlib.sha256(b"b" * 64).hexdigest()
    fields = {"digest": digest, "expires_s": rng.choice((0.0, 1e12))}
    return written(rng, grown(rng, fields) if rng.random() < 0.8 else fields)


def _token(rng: Random) -> bytes:
    ticket = f"{rng.getrandbits(64):016x}.{rng.getrandbits(256):064x}"
    texts = (*TEXTS, ticket, ticket.upper(), ticket + "\n", "../" + ticket, "s" * 31, "S" * 32)
    text = rng.choice(texts).encode("utf-8", "surrogatepass")
    return mangled(rng, text) if rng.random() < 0.3 else text


def _trust(rng: Random) -> bytes:
    return written(rng, grown(rng, found.TRUSTED))


def _status(rng: Random) -> bytes:
    lines = [json.dumps(rng.choice(found.ANNOUNCED)).encode(), *rng.choices(found.STATUS, k=rng.randrange(5))]
    at = rng.randrange(len(lines))
    if at == 0:
        lines[0] = written(rng, grown(rng, json.loads(lines[0])))
    else:
        lines[at] = mangled(rng, lines[at])
    return b"\n".join(lines) + rng.choice((b"\n", b"\n", b""))


def _toml(tree: dict[str, Any]) -> str:
    """Tables as TOML, as far as they can be; what cannot is written anyhow."""
    plain = {key: held for key, held in tree.items() if not isinstance(held, (dict, list)) or not held}
    lines = [f"{_key(key)} = {_toml_value(held)}" for key, held in plain.items()]
    for key, held in tree.items():
        if isinstance(held, dict) and held:
            lines += [f"[{_key(key)}]" if not _deep(held) else "", *_tables(_key(key), held)]
        elif isinstance(held, list) and held:
            lines.insert(0, f"{_key(key)} = {_toml_value(held)}")
    return "\n".join(lines)


def _deep(tree: dict[str, Any]) -> bool:
    return bool(tree) and all(isinstance(held, dict) for held in tree.values())


def _tables(prefix: str, tree: dict[str, Any]) -> list[str]:
    if not _deep(tree):
        return [f"{_key(key)} = {_toml_value(held)}" for key, held in tree.items()]
    lines = []
    for key, held in tree.items():
        lines += [f"[{prefix}.{_key(key)}]", *(f"{_key(k)} = {_toml_value(v)}" for k, v in held.items())]
    return lines


def _key(key: Any) -> str:
    return json.dumps(str(key))


def _toml_value(held: Any) -> str:
    if isinstance(held, dict):
        return "{" + ", ".join(f"{_key(key)} = {_toml_value(one)}" for key, one in held.items()) + "}"
    if isinstance(held, list):
        return "[" + ", ".join(map(_toml_value, held)) + "]"
    return "nan" if held is None else json.dumps(held)


def _file(tree: Callable[[], dict[str, Any]]) -> Callable[[Random], bytes]:
    def made(rng: Random) -> bytes:
        changed = grown(rng, tree())
        text = _toml(changed if isinstance(changed, dict) else {"x": value(rng)})
        data = text.encode("utf-8", "surrogatepass")
        return mangled(rng, data) if rng.random() < 0.2 else data

    return made


_MADE: dict[str, Callable[[Random], bytes]] = {
    "ticket": _ticket,
    "token": _token,
    "trust": _trust,
    "status": _status,
    "devices": _file(lambda: found.DEVICES),
    "board": _file(lambda: tomllib.loads(found.board("boards"))),
    "core": _file(lambda: tomllib.loads(found.board("cores"))),
}
