"""Archives of `torch.export`, checked before torch reads them: an archive is data, and this proves it.

Torch itself trusts an archive. It loads a pickle that `weights_only` refuses a second time without,
evaluates the text of sizes and guards as Python, puts names into Python source that it executes, resolves an
operator by walking attributes from `torch`, and loads compiled libraries. So nothing gets to torch that is
not on a list here: entries by name, globals of pickles, and, in `program`, every text of the program.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import pickletools
import re
import struct
import warnings
import zipfile
from typing import IO, Collection, Dict, FrozenSet, Iterator, List, Pattern

from device_agent.contract import strict_json
from device_agent.contract.limits import LIMITS
from device_agent.contract.pt2.program import check_payloads, check_program
from device_agent.contract.text import printable

# Forces `weights_only=True` on every `torch.load`, also on one that asks for False (torch.serialization).
FORCE_WEIGHTS_ONLY = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
FORCE_NO_WEIGHTS_ONLY = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"

_PROGRAM = "models/model.json"
_PICKLES = re.compile(r"data/sample_inputs/model\.pt|data/(weights|constants)/model\.pt")
_CONFIG = re.compile(r"data/(weights|constants)/model_(weights|constants)_config\.json")
_PAYLOAD = re.compile(r"data/(weights/weight|constants/tensor)_[0-9]{1,9}")
_PLAIN = re.compile(
    r"archive_format|archive_version|byteorder|\.format_version|\.storage_alignment"
    r"|\.data/(version|serialization_id)|version|extra/[A-Za-z0-9_./-]{1,200}"
)
# What torch wrote until 2.7: no folder, and all weights in one pickle.
_OLD_PROGRAM = "serialized_exported_program.json"
_OLD_PICKLES = re.compile(r"serialized_(state_dict|constants|example_inputs)\.pt")
_OLD_PLAIN = re.compile(r"version|extra_files/[A-Za-z0-9_./-]{1,200}")

_PICKLED = re.compile(r"data\.pkl")
_STORAGE = re.compile(r"data/[0-9]{1,9}")

# What the pickle of a tensor may name; torch's own `weights_only` decides further.
_GLOBALS = {
    "collections": re.compile(r"OrderedDict"),
    "torch": re.compile(
        r"[A-Za-z0-9]*Storage|Size|device|(u?int|float|bfloat|complex|q?u?int)[0-9a-z_]*|bool"
    ),
    "torch._utils": re.compile(
        r"_rebuild_(tensor|tensor_v2|tensor_v3|parameter|sparse_tensor|meta_tensor_no_storage)"
    ),
    "torch._tensor": re.compile(r"_rebuild_from_type_v2|Tensor"),
    "torch.nn.parameter": re.compile(r"Parameter|Buffer"),
    "torch.serialization": re.compile(r"_get_layout"),
    "torch.storage": re.compile(r"[A-Za-z]*Storage"),
}
_FORBIDDEN = frozenset(("INST", "OBJ", "NEWOBJ_EX", "STACK_GLOBAL", "EXT1", "EXT2", "EXT4", "PERSID"))

_END, _END64, _LOCATOR = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"


def check_archive(path: str) -> FrozenSet[str]:
    """Refuses an archive that holds more than tensors and a graph of known operators.

    Returns:
        The libraries of operators that the graph uses, "aten" among them.

    Raises:
        ValueError: why; the message is one line that can be shown.
        OSError: the file cannot be read.
    """
    with open(path, "rb") as stream:
        archive = _Archive(stream, "the archive")
        names = archive.names()
        if _OLD_PROGRAM in names:
            archive.check_names(names, (_OLD_PICKLES, _OLD_PLAIN), (_OLD_PROGRAM,))
            programs, pickles = [_OLD_PROGRAM], [name for name in names if _OLD_PICKLES.fullmatch(name)]
        else:
            names = archive.without_folder(names)
            archive.check_names(names, (_PICKLES, _CONFIG, _PAYLOAD, _PLAIN), (_PROGRAM,))
            programs, pickles = [_PROGRAM], [name for name in names if _PICKLES.fullmatch(name)]
        if not all(name in names for name in programs):
            raise ValueError("there is no program in it")
        used = [check_program(archive.json(name)) for name in programs]
        for name in names:
            if _CONFIG.fullmatch(name):
                pickles += check_payloads(archive.json(name), name.rsplit("/", 1)[0])
        for name in sorted(set(pickles)):
            if name not in names:
                raise ValueError("%s is missing" % printable(name, 100))
            _check_pickle(archive, name)
        return frozenset().union(*used)


def load_libraries(used: Collection[str]) -> None:
    """Loads the libraries of operators that torch does not load by itself.

    Args:
        used: see `check_archive`.

    Raises:
        ImportError: this version of torch does not have one.
    """
    if "quantized_decomposed" in used:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch's own code
            importlib.import_module("torch.ao.quantization.fx._decomposed")


@contextlib.contextmanager
def weights_only() -> Iterator[None]:
    """No `torch.load` within makes anything but tensors, whatever its caller asks for."""
    kept = {name: os.environ.get(name) for name in (FORCE_WEIGHTS_ONLY, FORCE_NO_WEIGHTS_ONLY)}
    os.environ[FORCE_WEIGHTS_ONLY] = "1"
    os.environ.pop(FORCE_NO_WEIGHTS_ONLY, None)
    try:
        yield
    finally:
        for name, value in kept.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


class _Archive:
    """A zip file that any two readers understand alike: nothing compressed, hidden or there twice."""

    def __init__(self, stream: IO[bytes], what: str) -> None:
        self._what = what
        self._folder = ""
        _check_end(stream, what)
        try:
            self._zip = zipfile.ZipFile(stream)
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError, RuntimeError) as error:
            raise ValueError("%s is damaged: %s" % (what, printable(error, 200))) from error
        self._entries: Dict[str, zipfile.ZipInfo] = {}
        for entry in self._zip.infolist():
            self._check_entry(stream, entry)
            self._entries[entry.filename] = entry
        folded = {name.lower() for name in self._entries}
        if not self._entries or len(folded) != len(self._zip.infolist()):
            raise ValueError("%s is empty or has an entry twice" % what)

    def _check_entry(self, stream: IO[bytes], entry: zipfile.ZipInfo) -> None:
        name = entry.orig_filename
        shown = printable(name, 100)
        if name != entry.filename or not re.fullmatch(r"[A-Za-z0-9_.,@+() /-]{1,500}", name):
            raise ValueError("%s has an entry of the name %s" % (self._what, shown))
        if name.startswith("/") or ".." in name.split("/") or name.endswith("/"):
            raise ValueError("%s has an entry outside of its folder: %s" % (self._what, shown))
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
            raise ValueError("%s has a compressed or encrypted entry: %s" % (self._what, shown))
        if entry.compress_size != entry.file_size:
            raise ValueError("%s has an entry of two sizes: %s" % (self._what, shown))
        stream.seek(entry.header_offset)
        header = stream.read(30)
        if len(header) < 30 or header[:4] != b"PK\x03\x04":
            raise ValueError("%s is damaged at %s" % (self._what, shown))
        name_bytes, extra_bytes = struct.unpack("<HH", header[26:30])
        end = entry.header_offset + 30 + name_bytes + extra_bytes + entry.file_size
        if stream.read(name_bytes) != name.encode() or end > self._zip.start_dir:
            raise ValueError("%s is damaged at %s" % (self._what, shown))

    def names(self) -> List[str]:
        """The names of all entries, in the archive's order."""
        return list(self._entries)

    def without_folder(self, names: List[str]) -> List[str]:
        """Names within the one folder that all entries lie in."""
        self._folder = names[0].split("/", 1)[0] + "/"
        if not all(name.startswith(self._folder) for name in names):
            raise ValueError("%s is none of torch.export: its entries lie in several folders" % self._what)
        return [name[len(self._folder) :] for name in names]

    def check_names(
        self, names: List[str], patterns: Collection[Pattern[str]], others: Collection[str]
    ) -> None:
        """Refuses an entry that is of no known kind, such as a compiled library."""
        for name in names:
            if name not in others and not any(p.fullmatch(name) for p in patterns):
                raise ValueError(
                    "%s holds %s, which is no part of a model" % (self._what, printable(name, 100))
                )

    def read(self, name: str, most: int) -> bytes:
        """The bytes of an entry."""
        entry = self._entries[self._folder + name]
        if entry.file_size > most:
            raise ValueError(
                "%s has %d bytes, at most %d are read" % (printable(name, 100), entry.file_size, most)
            )
        try:
            return self._zip.read(entry)
        except (zipfile.BadZipFile, EOFError, OSError, RuntimeError, NotImplementedError) as error:
            raise ValueError("%s is damaged: %s" % (printable(name, 100), printable(error, 200))) from error

    def json(self, name: str) -> object:
        """The value of a JSON entry."""
        most = LIMITS.model.program_bytes
        return strict_json.parse(self.read(name, most), most, printable(name, 100))


def _check_end(stream: IO[bytes], what: str) -> None:
    """Refuses a zip file whose directory is not where every reader finds it: at its very end."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, size - 98))
    tail = stream.read(98)
    end = tail[-22:]
    if len(end) < 22 or end[:4] != _END or end[20:22] != b"\0\0":
        raise ValueError("%s is no zip file, or it is truncated" % what)
    directory_bytes, directory_at = struct.unpack("<II", end[12:20])
    found = size - 22
    if tail[-42:-38] == _LOCATOR:
        (at,) = struct.unpack("<Q", tail[-34:-26])
        found = size - 98
        if at != found or tail[-98:-94] != _END64:
            raise ValueError("%s has two directories" % what)
        directory_bytes, directory_at = struct.unpack("<QQ", tail[-58:-42])
    if directory_at + directory_bytes != found or directory_bytes > LIMITS.model.directory_bytes:
        raise ValueError("%s has a directory of a wrong size" % what)
    stream.seek(0)


def _check_pickle(archive: _Archive, name: str) -> None:
    """Refuses what names more than tensors and containers."""
    data = archive.read(name, LIMITS.model.pickle_bytes)
    if not data:
        return
    what = printable(name, 100)
    inner = _Archive(io.BytesIO(data), what)
    names = inner.without_folder(inner.names())
    inner.check_names(names, (_PICKLED, _STORAGE, _PLAIN), ())
    if "data.pkl" not in names:
        raise ValueError("%s holds no tensors" % what)
    try:
        for operation, argument, _ in pickletools.genops(inner.read("data.pkl", LIMITS.model.program_bytes)):
            if operation.name in _FORBIDDEN:
                raise ValueError("it uses %s" % operation.name)
            if operation.name == "GLOBAL":
                module, _, thing = str(argument).partition(" ")
                if module not in _GLOBALS or not _GLOBALS[module].fullmatch(thing):
                    raise ValueError("it names %s.%s, which is no tensor" % (module, thing))
    except (ValueError, IndexError, KeyError, OverflowError, UnicodeDecodeError, MemoryError) as error:
        raise ValueError("the pickle %s is refused: %s" % (what, printable(error, 200))) from error
