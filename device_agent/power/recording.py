"""A recording of a board's sensors: a system root in an archive, to test against without the board.

`device-agent record-sensors OUT.tar` makes one, `unpack` lays it out below a folder. It holds the files that
sensors, thermal zones and clocks are read from, what the board's programs answer, and a few seconds of all
numbers. Serial numbers, host names and users are in none of these.
"""

from __future__ import annotations

import fnmatch
import io
import json
import os
import tarfile
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

from device_agent.board import sysfs
from device_agent.board.commands import CommandError, Commands

SCHEMA = "edgetlm.sensors/1"
_ABOUT = "recording.json"
_SERIES = "series.jsonl"
_ANSWERS = "answers"
_LONGEST_BYTES = 4096
_PERIOD_S = 0.1

# Folders (with * for any name) and what is read in each of them.
_NUMBERS = ("*_input", "*_average", "energy_uj", "temp", "cur_state", "scaling_cur_freq", "*_event_cnt")
_PLACES: Tuple[Tuple[str, Tuple[str, ...]], ...] = (
    ("proc/device-tree", ("model", "compatible")),
    ("etc", ("nv_tegra_release",)),
    (
        "sys/class/hwmon/hwmon*",
        (
            *("name", "label", "*_label", "*_input", "*_average", "*_enable", "*_alarm", "*_crit", "*_max"),
            *("update_interval", "samples", "*_event_cnt", "*_throt_en", "shunt*_resistor", "shunt_resistor"),
        ),
    ),
    (
        "sys/bus/i2c/drivers/ina3221/*/hwmon/hwmon*",
        ("name", "in*_label", "in*_input", "in*_enable", "curr*", "update_interval", "samples"),
    ),
    (
        "sys/bus/i2c/drivers/ina3221x/*/iio:device*",
        ("rail_name_*", "in_*_input", "*_current_limit_*", "polling_delay*", "running_mode"),
    ),
    ("sys/class/powercap/intel-rapl*", ("name", "energy_uj", "max_energy_range_uj")),
    ("sys/class/power_supply/*", ("type", "online", "voltage_now", "current_now", "power_now")),
    ("sys/class/thermal/thermal_zone*", ("type", "temp")),
    ("sys/class/thermal/cooling_device*", ("type", "cur_state", "max_state")),
    ("sys/devices/system/cpu/cpufreq/policy*", ("scaling_*", "cpuinfo_*_freq", "affected_cpus")),
    ("sys/devices/system/cpu/cpu*/thermal_throttle", ("core_throttle_count",)),
    ("sys/class/devfreq/*", ("governor", "cur_freq", "min_freq", "max_freq")),
)
_QUESTIONS = (
    ("vcgencmd", "pmic_read_adc"),
    ("vcgencmd", "get_throttled"),
    ("vcgencmd", "measure_temp"),
    ("nvpmodel", "-q"),
)


class Recording(NamedTuple):
    """An unpacked recording.

    Attributes:
        root: system root that it was laid out below.
        about: the board's model, its kernel and when it was recorded.
        series: (seconds since the first, number by path), as read one after the other.
    """

    root: str
    about: Dict[str, Any]
    series: List[Tuple[float, Dict[str, int]]]


def record(root: str, out: str, seconds: float = 5.0) -> Dict[str, Any]:
    """Writes a recording of this machine, whole or not at all.

    Args:
        root: prefix of all system paths.
        out: the archive.
        seconds: how long to follow the numbers.

    Returns:
        What the archive says of itself, with the numbers of `files` and of `unreadable` ones.

    Raises:
        OSError: the archive cannot be written.
    """
    files, unreadable = _contents(root)
    answers = _answers(Commands(root))
    series = _follow(root, [path for path in files if _is_number(path)], seconds)
    about = {
        "schema": SCHEMA,
        "model": sysfs.text_or_none(os.path.join(root, "proc/device-tree/model")) or "",
        "kernel": os.uname().release,
        "machine": os.uname().machine,
        "recorded": time.strftime("%Y-%m-%d", time.gmtime()),
        "unreadable": unreadable,
        "answers": {name: code for name, (_, code) in answers.items()},
    }
    temporary = "%s.part" % out
    try:
        with tarfile.open(temporary, "w") as archive:
            _add(archive, _ABOUT, json.dumps(about, indent=1).encode())
            _add(archive, _SERIES, "".join(json.dumps(line) + "\n" for line in series).encode())
            for name, (text, _) in answers.items():
                _add(archive, "%s/%s" % (_ANSWERS, name), text.encode())
            for path, content in files.items():
                _add(archive, path, content)
        os.replace(temporary, out)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
    return dict(about, files=len(files), unreadable=len(unreadable))


def _contents(root: str) -> Tuple[Dict[str, bytes], Dict[str, str]]:
    files: Dict[str, bytes] = {}
    unreadable: Dict[str, str] = {}
    for place, patterns in _PLACES:
        for folder in _folders(root, place.split("/")):
            for path in sysfs.children(os.path.join(root, folder)):
                name = os.path.basename(path)
                wanted = any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
                if not wanted or os.path.isdir(path):
                    continue
                try:
                    with open(path, "rb") as file:
                        files["%s/%s" % (folder, name)] = file.read(_LONGEST_BYTES)
                except OSError as error:
                    unreadable["%s/%s" % (folder, name)] = error.strerror or str(error)
    return files, unreadable


def _folders(root: str, parts: List[str], done: str = "") -> Iterator[str]:
    """Folders below the root that match, by names that may be links."""
    if not parts:
        yield done
        return
    for path in sysfs.children(os.path.join(root, done)):
        name = os.path.basename(path)
        if fnmatch.fnmatchcase(name, parts[0]) and os.path.isdir(path):
            yield from _folders(root, parts[1:], os.path.join(done, name))


def _answers(commands: Commands) -> Dict[str, Tuple[str, int]]:
    answers = {}
    for words in _QUESTIONS:
        if commands.path(words[0]) is not None:
            try:
                answers[" ".join(words)] = (commands.output(*words), 0)
            except CommandError as error:
                answers[" ".join(words)] = (str(error), 1)
    return answers


def _is_number(path: str) -> bool:
    return any(fnmatch.fnmatchcase(os.path.basename(path), pattern) for pattern in _NUMBERS)


def _follow(root: str, paths: List[str], seconds: float) -> List[Any]:
    attributes = {path: sysfs.Attribute(os.path.join(root, path)) for path in paths}
    series: List[Any] = []
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        numbers = {}
        at_s = time.monotonic() - began
        for path, attribute in attributes.items():
            try:
                numbers[path] = attribute.number()
            except (OSError, ValueError):
                continue  # what cannot be read now is missing from this line
        series.append([round(at_s, 4), numbers])
        time.sleep(_PERIOD_S)
    for attribute in attributes.values():
        attribute.close()
    return series


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    member.mode = 0o644
    archive.addfile(member, io.BytesIO(content))


def unpack(path: str, folder: str) -> Recording:
    """Lays a recording out as a system root: its files, and programs that answer as the board's did.

    Files that could not be read on the board may not be read here either, but by root.

    Args:
        path: the archive.
        folder: made if it does not exist.

    Raises:
        ValueError: it is no recording, or one with paths that leave the folder.
        OSError: it cannot be read or laid out.
    """
    with tarfile.open(path) as archive:
        for member in archive.getmembers():
            name = os.path.normpath(member.name)
            if not member.isfile() or name.startswith(("/", "..")):
                raise ValueError("%s holds %s, which no recording does" % (path, member.name))
            source = archive.extractfile(member)
            assert source is not None
            _write(os.path.join(folder, name), source.read(), 0o644)
    try:
        with open(os.path.join(folder, _ABOUT), encoding="utf-8") as file:
            about = json.load(file)
        with open(os.path.join(folder, _SERIES), encoding="utf-8") as file:
            series = [json.loads(line) for line in file]
    except FileNotFoundError as error:
        raise ValueError("%s is no recording of sensors: %s" % (path, error)) from error
    if about.get("schema") != SCHEMA:
        raise ValueError("%s is of schema %s, this reads %s" % (path, about.get("schema"), SCHEMA))
    for name in about["unreadable"]:
        _write(os.path.join(folder, os.path.normpath(name)), b"", 0o000)
    for program in sorted({name.split()[0] for name in about["answers"]}):
        _write(os.path.join(folder, "usr/bin", program), _program(program, about).encode(), 0o755)
    return Recording(folder, about, [(float(at_s), numbers) for at_s, numbers in series])


def _program(name: str, about: Dict[str, Any]) -> str:
    """A program that repeats the answers of the board's."""
    lines = ["#!/bin/sh", 'answers="$(dirname "$0")/../../%s"' % _ANSWERS, 'case "%s $*" in' % name]
    for question, code in sorted(about["answers"].items()):
        if question.split()[0] == name:
            lines.append('"%s") cat "$answers/%s"; exit %d;;' % (question, question, code))
    return "\n".join([*lines, "esac", "echo 'this was not recorded'", "exit 255", ""])


def _write(path: str, content: bytes, mode: int) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)
    os.chmod(path, mode)
