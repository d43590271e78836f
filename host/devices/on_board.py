"""The board's half of installing: sent as text over SSH and run there by whatever Python 3 there is.

It needs nothing but the standard library, keeps to the syntax of Python 3.6 so that an older one can say that
it is too old, reads one JSON object from its argument and prints one JSON line. Everything below the agent's
folder appears whole or not at all: it grows beside its place and is renamed.
"""

import contextlib
import errno
import fcntl
import gzip
import hashlib
import json
import os
import platform
import secrets
import shutil
import subprocess
import sys
import tarfile
import time
import zlib
from typing import Any, Dict, Iterator, List

UNIT = "edgetlm-agent.service"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_CHUNK_BYTES = 1 << 20
_STALE_S = 86400.0
_COMMAND_S = 30
_SYSTEM_UNITS = "/etc/systemd/system"
# Is there where systemd runs (sd_booted(3)).
_BOOTED = "/run/systemd/system"
_LINGERING = "/var/lib/systemd/linger"


class Refused(Exception):
    """Something that cannot be done, for the host to report."""


def home_folder(order: Dict[str, Any]) -> str:
    """The agent's folder: as ordered, EDGETLM_HOME, or `edgetlm` below XDG_DATA_HOME."""
    if order.get("home"):
        return os.path.abspath(os.path.expanduser(str(order["home"])))
    if os.environ.get("EDGETLM_HOME"):
        return os.path.abspath(os.environ["EDGETLM_HOME"])
    base = os.environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
    return os.path.join(base, "edgetlm")


def status(order: Dict[str, Any]) -> Dict[str, Any]:
    """What is installed and what is under way; makes the folder, private to this user."""
    home = home_folder(order)
    for folder in (home, os.path.join(home, "incoming")):
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if os.stat(folder).st_uid != os.geteuid():
            raise Refused("%s belongs to another user; set EDGETLM_HOME to a folder of yours" % folder)
    os.chmod(home, 0o700)
    incoming = os.path.join(home, "incoming")
    return {
        "home": home,
        "python": sys.executable,
        "agent": _link_name(os.path.join(home, "agent", "current")),
        "agents": _folders(os.path.join(home, "agent")),
        "payloads": _folders(os.path.join(home, "payloads")),
        "serves": _read_table(os.path.join(home, "payloads.json")),
        "incoming": {name: os.path.getsize(os.path.join(incoming, name)) for name in os.listdir(incoming)},
        "free_bytes": shutil.disk_usage(home).free,
        "unit": unit_state(home),
    }


def unpack(order: Dict[str, Any]) -> Dict[str, Any]:
    """Verifies an archive that has arrived and gives its content its place, `into`/`sha256`."""
    home = home_folder(order)
    archive = os.path.join(home, "incoming", os.path.basename(str(order["archive"])))
    target = os.path.join(home, str(order["into"]), str(order["sha256"]))
    with _locked(home):
        if not os.path.isdir(target):
            partial = "%s.%s.part" % (target, secrets.token_hex(4))
            try:
                _verify(archive, str(order["sha256"]))
                os.makedirs(partial, mode=0o700)
                _extract(archive, partial)
                os.rename(partial, target)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
        _remove(archive)
    return {"path": target}


def apply(order: Dict[str, Any]) -> Dict[str, Any]:
    """Puts into use: the agent's version, what serves which engine, and the board's description."""
    home = home_folder(order)
    with _locked(home):
        for name, content in dict(order.get("files") or {}).items():
            _write(os.path.join(home, os.path.basename(name)), json.dumps(content))
        agent = order.get("agent")
        if agent:
            if not os.path.isdir(os.path.join(home, "agent", agent, "device_agent")):
                raise Refused("the agent %s is not installed whole; install it again" % agent[:12])
            # Whoever connects starts the agent by this interpreter.
            _write(os.path.join(home, "agent", "python"), sys.executable)
            link = os.path.join(home, "agent", "current")
            partial = "%s.%s" % (link, secrets.token_hex(4))
            os.symlink(agent, partial)
            os.replace(partial, link)
    return {"python": sys.executable}


def prune(order: Dict[str, Any]) -> Dict[str, Any]:
    """Removes versions that nothing uses: neither the installed ones nor the running agent's."""
    home = home_folder(order)
    removed = []
    with _locked(home):
        used = {_link_name(os.path.join(home, "agent", "current"))}
        running = _read_table(os.path.join(home, "device", "agent.json"))
        used.add(os.path.basename(os.path.dirname(str(running.get("code", "")))))
        for entry in _read_table(os.path.join(home, "payloads.json")).values():
            if isinstance(entry, dict):
                used.add(os.path.basename(str(entry.get("path", ""))))
        for kind in ("agent", "payloads"):
            folder = os.path.join(home, kind)
            for name in _folders(folder):
                if name not in used:
                    shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
                    removed.append(name)
        incoming = os.path.join(home, "incoming")
        for name in os.listdir(incoming):
            path = os.path.join(incoming, name)
            if time.time() - os.path.getmtime(path) > _STALE_S:
                _remove(path)
    return {"removed": removed}


def add_unit(order: Dict[str, Any]) -> Dict[str, Any]:
    """Has this user's systemd start the agent; returns the reason where it cannot."""
    home = home_folder(order)
    found = unit_state(home)
    if not found["available"]:
        return found
    path, text = _unit_path(), str(order["text"])
    if _read(path) != text:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _write(path, text)
    # Also where the file is there already: the run that wrote it may have ended before it came to this.
    _systemctl("daemon-reload")
    _systemctl("enable", UNIT)
    if not found["linger"]:
        # A user may allow it to himself on most boards; where not, the host says what to type.
        with contextlib.suppress(Refused):
            _run(["loginctl", "--no-ask-password", "enable-linger"], "/")
    return unit_state(home)


def remove_all(order: Dict[str, Any]) -> Dict[str, Any]:
    """Ends the agent and removes its unit; with `purge` the whole folder, bundles included."""
    home = home_folder(order)
    removed = []
    if home in (_read(_unit_path()) or ""):
        with contextlib.suppress(Refused):
            _systemctl("disable", "--now", UNIT)
        _remove(_unit_path())
        with contextlib.suppress(Refused):
            _systemctl("daemon-reload")
        removed.append(_unit_path())
    code = os.path.join(home, "agent", "current")
    if os.path.isdir(code):
        done = _run([sys.executable, "-m", "device_agent", "stop", "--home", home], os.path.realpath(code))
        if done.returncode:
            raise Refused("the agent does not end: %s" % _last_line(done.stderr))
    names = [""] if order.get("purge") else ["agent", "payloads", "payloads.json", "board.json", "incoming"]
    for name in names:
        path = os.path.join(home, name) if name else home
        if os.path.exists(path):
            removed.append(path)
            if os.path.isdir(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)
    return {"removed": removed, "kept": "" if order.get("purge") else os.path.join(home, "device")}


def unit_state(home: str) -> Dict[str, Any]:
    """Whether this user's systemd runs, has the agent's unit, and outlives the user's login."""
    state = dict(available=False, enabled=False, linger=False, reason="")  # type: Dict[str, Any]
    state.update(path=_unit_path(), system=home in (_read(os.path.join(_SYSTEM_UNITS, UNIT)) or ""))
    if not os.path.isdir(_BOOTED):
        state["reason"] = "this board is not run by systemd"
        return state
    os.environ.setdefault("XDG_RUNTIME_DIR", "/run/user/%d" % os.geteuid())
    try:
        _systemctl("show-environment")
    except Refused as error:
        state["reason"] = str(error)
        return state
    state["available"] = True
    state["enabled"] = home in (_read(_unit_path()) or "")
    state["linger"] = os.path.exists(os.path.join(_LINGERING, _user()))
    return state


def examine(order: Dict[str, Any]) -> Dict[str, Any]:
    """The facts of the board itself that a person has to know."""
    home = home_folder(order)
    return {
        "user": _user(),
        "system": "%s %s" % (platform.system(), platform.release()),
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()),
        "time_s": time.time(),
        "power_mode": _output(["nvpmodel", "-q"]),
        "throttled": _output(["vcgencmd", "get_throttled"]),
        "tvm_ffi": _loads(home),
        "agent_log": _last_line((_read(os.path.join(home, "device", "agent.log")) or "").encode()),
    }


def _loads(home: str) -> str:
    """Why the runtime of the installed payload does not load, "" if it does."""
    entry = _read_table(os.path.join(home, "payloads.json")).get("tvm")
    if not isinstance(entry, dict):
        return "no runtime is installed"
    folder = os.path.join(home, str(entry.get("path", "")))
    if entry.get("kind") == "native":
        executable = os.path.join(folder, "edgetlm-executor")
        return "" if os.access(executable, os.X_OK) else "%s is missing" % executable
    environment = dict(os.environ, PYTHONPATH=folder)
    done = _run([sys.executable, "-c", "import tvm_ffi"], folder, environment)
    return "" if done.returncode == 0 else _last_line(done.stderr)


def _output(command: List[str]) -> str:
    try:
        done = _run(command, "/")
    except Refused:
        return ""
    return done.stdout.decode("utf-8", "replace").strip() if done.returncode == 0 else ""


def _verify(archive: str, digest: str) -> None:
    hasher = hashlib.sha256()
    try:
        with gzip.open(archive, "rb") as stream:
            while True:
                chunk = stream.read(_CHUNK_BYTES)
                if not chunk:
                    break
                hasher.update(chunk)
        found = hasher.hexdigest()
    except (EOFError, ValueError, zlib.error) as error:
        found = str(error)
    except OSError as error:
        if error.errno in _FULL or error.errno == errno.EIO:
            raise
        found = str(error)  # not a gzip file
    if found != digest:
        _remove(archive)
        raise Refused("what arrived is not what was sent (%s); the same command sends it again" % found[:60])


def _extract(archive: str, folder: str) -> None:
    with tarfile.open(archive, "r:gz") as tar:
        # Its content has just been proven to be the host's; newer Pythons want a filter named all the same.
        if hasattr(tarfile, "tar_filter"):
            tar.extraction_filter = staticmethod(tarfile.tar_filter)
        tar.extractall(folder)
    # A power cut must not leave a folder with its name and without its content.
    os.sync()


@contextlib.contextmanager
def _locked(home: str) -> Iterator[None]:
    """Make the folders and hold the lock under which one host at a time installs."""
    for name in ("", "agent", "payloads", "incoming"):
        os.makedirs(os.path.join(home, name), mode=0o700, exist_ok=True)
    with open(os.path.join(home, "install.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _write(path: str, text: str) -> None:
    partial = "%s.%s" % (path, secrets.token_hex(4))
    try:
        with open(partial, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        _remove(partial)


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _read(path: str) -> Any:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None


def _read_table(path: str) -> Dict[str, Any]:
    """The object in a file of JSON; none where there is no such file, or one that is damaged."""
    try:
        found = json.loads(_read(path) or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _folders(path: str) -> List[str]:
    if not os.path.isdir(path):
        return []
    return sorted(entry.name for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False))


def _link_name(path: str) -> str:
    try:
        return os.path.basename(os.readlink(path))
    except OSError:
        return ""


def _unit_path() -> str:
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(base, "systemd", "user", UNIT)


def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _systemctl(*words: str) -> None:
    done = _run(["systemctl", "--user"] + list(words), "/")
    if done.returncode:
        raise Refused("systemctl --user %s: %s" % (words[0], _last_line(done.stderr)))


def _run(command: List[str], folder: str, environment: Any = None) -> Any:
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=_COMMAND_S,
            cwd=folder,
            env=environment,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Refused("%s: %s" % (command[0], error)) from error


def _last_line(text: bytes) -> str:
    lines = [line.strip() for line in text.decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


COMMANDS = {
    "status": status,
    "unpack": unpack,
    "apply": apply,
    "prune": prune,
    "unit": add_unit,
    "remove": remove_all,
    "examine": examine,
}


def main(text: str) -> int:
    """Carries out one order; prints its answer, or `error` with what is wrong."""
    if sys.version_info < (3, 8):
        answer = {"error": {"kind": "python", "message": platform.python_version()}}  # type: Dict[str, Any]
    else:
        order = json.loads(text)
        os.umask(0o077)
        try:
            answer = COMMANDS[order["do"]](order)
        except Refused as error:
            answer = {"error": {"kind": "refused", "message": str(error)}}
        except OSError as error:
            kind = "device_full" if error.errno in _FULL else "refused"
            answer = {"error": {"kind": kind, "message": str(error)}}
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
