"""Starting, looking at and ending the hosts of a cluster, on this machine and over SSH.

A host is one process, `ray start --block`, that ends all that it started. Its number is kept in a file beside
what it says, so that exactly this one is ended: Ray's own `stop` would end every cluster's.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shlex
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from device_agent.contract.text import printable
from host.cluster.description import ClusterDescription, ClusterHost
from host.cluster.node import start_command, start_environment
from host.errors import EdgeError
from host.execution import TOKEN_FILE, read_token
from host.places import config_root

_START_S, _END_S, _LOOK_S = 180.0, 60.0, 30.0
_AT_ONCE = 16
# With these words a host ends that a busy machine gives too little of 30 s, which Ray has no option for.
TOO_SLOW = "node timed out during startup"
_FOLDER = (
    'f="${XDG_STATE_HOME:-$HOME/.local/state}/edgetlm/cluster"; mkdir -p "$f" && chmod 700 "$f" && cd "$f"'
)
# The process of a host, and whether it is still that one: numbers are given again.
_RUNS = 'p=$(cat {name}.pid 2>/dev/null) && tr "\\0" " " < /proc/$p/cmdline 2>/dev/null | grep -q ray.scripts'
_UP = (
    "{folder} || exit 1; umask 077; "
    # Two commands at once would start two processes, of which one would never be ended.
    "exec 9> {name}.lock; if command -v flock > /dev/null; then flock 9; fi; "
    'if {runs}; then [ "$(cat {name}.described 2>/dev/null)" = {described} ] && echo runs && exit 0; '
    "echo 'it runs as it was described before: end it with sdk cluster down' >&2; exit 1; fi; "
    "{why} before >&2 || exit 1; "
    "cat > token; echo {described} > {name}.described; "
    "begin() { env -u RAY_AUTH_TOKEN RAY_AUTH_TOKEN_PATH=$PWD/token {environment} setsid nohup {command} "
    "> {name}.log 2>&1 < /dev/null 9>&- & echo $! > {name}.pid; }; begin; "
    # By the clock: on a busy machine a turn takes much longer than its sleep.
    'i=0; end=$(($(date +%s)+{seconds})); while [ "$(date +%s)" -lt $end ]; do '
    'grep -q "Ray runtime started" {name}.log 2>/dev/null && echo started && exit 0; '
    # Where the machine is busy, a raylet gives up after 15 s, and Ray, which does not see it, after minutes.
    'if [ $((i%10)) = 9 ] && grep -qs "(raylet) Z $! " /proc/[0-9]*/stat; '
    "then kill -s KILL -- -$!; wait $!; begin; fi; "
    "kill -0 $! 2>/dev/null || { grep -qs {slow} {name}.log && begin || break; }; "
    "sleep 0.1; i=$((i+1)); done; "
    "kill $! 2>/dev/null; wait $!; tail -n 3 {name}.log >&2; {why} after >&2; exit 1"
)
# Why a host cannot start, in place of minutes in which Ray tries, and of its words, which do not say it. An
# address that is not the host's may still be one that leads to it: it counts where the start has failed.
_WHY = """
import os, socket, sys
address, port, when = sys.argv[1], int(sys.argv[2]), sys.argv[3]
try:
    family = socket.getaddrinfo(address, port)[0][0]
    socket.create_server((address, port), family=family).close()
except socket.gaierror:
    sys.exit(f"no host is called {address}")
except OSError as error:
    if error.errno == 98:
        sys.exit(f"something else listens at {address}:{port}: end it, or take another port")
    if when == "after":
        sys.exit(f"{address}: {os.strerror(error.errno)}: give an address of this host, or ssh to another")
"""
_DOWN = (
    "{folder} || exit 1; if {runs}; then kill $p; i=0; "
    "while kill -0 $p 2>/dev/null && [ $i -lt {tenths} ]; do sleep 0.1; i=$((i+1)); done; "
    "kill -0 $p 2>/dev/null && exit 1; rm -f {name}.pid; echo ended; else echo away; fi"
)
_STATUS = "{folder} || exit 1; if {runs}; then echo up; else echo down; fi"


@dataclass(frozen=True)
class HostState:
    """The state of one host of a cluster.

    Attributes:
        host: its entry in the description.
        state: "up", "down", "started", "runs" (it did already), "ended", "away" (it did not run) or "failed".
        reason: of a failure; "" without one.
    """

    host: ClusterHost
    state: str
    reason: str = ""


def up(cluster: ClusterDescription) -> tuple[HostState, ...]:
    """Start every host that does not run, with the secret of this user's cluster.

    Where the head does not run, all hosts are started anew. Machines start at the same time, and wait for the
    head; hosts of one machine start one after the other (see `start_command`, on `temporary`).

    Raises:
        EdgeError: the secret cannot be kept.
    """
    token = kept_token()

    def start(host: ClusterHost) -> HostState:
        head = "" if host is cluster.hosts[0] else cluster.head
        python = host.python or ("python3" if host.ssh else sys.executable)
        command = start_command(python, host.boards, host.cores, head, cluster.port, host.address)
        environment = {
            k: v for k, v in start_environment("", host.board_cores).items() if k != "RAY_AUTH_TOKEN"
        }
        words = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())
        described = hashlib.sha256(f"{words} {shlex.join(command)}".encode()).hexdigest()
        why = [python, "-c", _WHY, host.address, "0" if head else str(cluster.port)]
        script = (
            _script(_UP, host, _START_S).replace("{described}", described).replace("{environment}", words)
        )
        script = script.replace("{command}", shlex.join(command)).replace("{why}", shlex.join(why))
        return _run_script(host, script, token, _START_S)

    rest = cluster.hosts[1:]
    found = _look(cluster.hosts[0])
    if found.state != "down":
        # It runs, or cannot be reached, and then nobody knows whether its hosts still have it.
        first = found if found.state == "failed" else start(cluster.hosts[0])
        return (first,) if first.state == "failed" else (first, *_by_machine(start, rest))
    # A host that runs is one of a cluster that is no more.
    _each(_end, rest)
    beside = tuple(host for host in rest if host.ssh == cluster.hosts[0].ssh)
    elsewhere = tuple(host for host in rest if host not in beside)
    with ThreadPoolExecutor(1) as waiting:
        others = waiting.submit(_by_machine, start, elsewhere)
        first = start(cluster.hosts[0])
        if first.state == "failed":
            # They would wait for it for two minutes.
            _each(_end, elsewhere)
            return (first,)
        states = {one.host: one for one in (*map(start, beside), *others.result())}
    return (first, *(states[host] for host in rest))


def down(cluster: ClusterDescription) -> tuple[HostState, ...]:
    """End every host, the head last."""
    return (*_each(_end, cluster.hosts[1:]), _end(cluster.hosts[0]))


def status(cluster: ClusterDescription) -> tuple[HostState, ...]:
    """The state of each host, in the order of the description: "up", "down", or "failed" with the reason."""
    return _each(_look, cluster.hosts)


def kept_token() -> str:
    """The secret of this user's cluster, which is made when it is first needed.

    Raises:
        EdgeError: its file cannot be read or written, or holds no secret.
    """
    path = config_root() / TOKEN_FILE
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return read_token(path)
        token = secrets.token_hex(32)
        with os.fdopen(file, "w") as opened:
            opened.write(token + "\n")
        return token
    except (OSError, ValueError) as error:
        raise EdgeError(
            f"the cluster's token cannot be kept in {path} ({printable(error, 200)}); make room for it, or "
            "remove a file that is damaged"
        ) from error


def _look(host: ClusterHost) -> HostState:
    return _run_script(host, _script(_STATUS, host, _LOOK_S), "", _LOOK_S)


def _end(host: ClusterHost) -> HostState:
    return _run_script(host, _script(_DOWN, host, _END_S), "", _END_S)


def _script(text: str, host: ClusterHost, limit_s: float) -> str:
    text = text.replace("{folder}", _FOLDER).replace("{runs}", _RUNS)
    text = text.replace("{slow}", shlex.quote(TOO_SLOW))
    text = text.replace("{tenths}", str(int(10 * limit_s))).replace("{seconds}", str(int(limit_s)))
    return text.replace("{name}", host.name)


def _each(do: Callable[[ClusterHost], HostState], hosts: tuple[ClusterHost, ...]) -> tuple[HostState, ...]:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return tuple(pool.map(do, hosts))


def _by_machine(
    do: Callable[[ClusterHost], HostState], hosts: tuple[ClusterHost, ...]
) -> tuple[HostState, ...]:
    """As `_each`; the hosts of one machine one after the other."""
    machines: dict[str, list[ClusterHost]] = {}
    for host in hosts:
        machines.setdefault(host.ssh, []).append(host)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        done = pool.map(lambda machine: [do(host) for host in machine], machines.values())
        states = {one.host: one for some in done for one in some}
    return tuple(states[host] for host in hosts)


def _run_script(host: ClusterHost, script: str, stdin: str, limit_s: float) -> HostState:
    """Run a script on a host; its first word is the state. Secrets are sent through its input."""
    try:
        if host.ssh:
            from host.address import parse_address
            from host.ssh import SshConnection

            user, address, port = parse_address(host.ssh)
            with SshConnection.to(host.name, address, user, port, "", "") as ssh:
                done = ssh.run(f"sh -c {shlex.quote(script)}", stdin.encode(), limit_s + _LOOK_S)
            code, said, failed = done.code, done.stdout.decode("utf-8", "replace"), done.error_line()
        else:
            ran = subprocess.run(
                ["sh", "-c", script],
                input=stdin,
                capture_output=True,
                text=True,
                timeout=limit_s + _LOOK_S,
                check=False,
            )
            code, said, failed = ran.returncode, ran.stdout, ran.stderr.strip()
    except (EdgeError, OSError, subprocess.TimeoutExpired) as error:
        return HostState(host, "failed", printable(error, 300))
    words = said.split()
    if code or not words:
        lines = failed.splitlines()
        return HostState(host, "failed", printable(lines[-1] if lines else f"exit code {code}", 300))
    return HostState(host, printable(words[-1], 20))
