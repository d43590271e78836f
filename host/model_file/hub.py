"""Models of the Hugging Face hub: `hf://ORG/MODEL[@REVISION][/PATH]` as a folder or file of this machine.

`huggingface_hub` downloads and keeps the files. What comes is configuration, tokenizer and safetensors of a
folder, or the one file that is named: no pickles and no code.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from device_agent.contract.manifest import TOKENIZER
from device_agent.contract.text import printable
from host.errors import EngineError, ModelFileError, UserError

SCHEME = "hf:/"
_FOLDER_FILES = (
    "config.json",
    "generation_config.json",
    TOKENIZER,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "additional_chat_templates/*.jinja",
    "*.safetensors",
    "*.safetensors.index.json",
)
_SUFFIXES = (".onnx", ".tflite", ".gguf", ".pt2")
# A part of a name as the hub has them.
_PART = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
_MODEL = re.compile(
    rf"hf://?(?P<model>{_PART}/{_PART})(@(?P<revision>[A-Za-z0-9._-]{{1,100}}))?(/(?P<path>.{{1,500}}))?"
)
_FORM = "write hf://ORG/MODEL, hf://ORG/MODEL@REVISION, or hf://ORG/MODEL/FILE.onnx"
_MARGIN_BYTES = 1 << 28


@dataclass(frozen=True)
class HubModel:
    """A model, or a file of one, on the hub.

    Attributes:
        model: ORG/MODEL.
        revision: branch, tag or commit; "main" if none is named.
        path: of a file in it; "" for the folder.
    """

    model: str
    revision: str
    path: str

    @property
    def name(self) -> str:
        """Of the model, without its owner."""
        return self.model.partition("/")[2]

    @property
    def text(self) -> str:
        """The model as a user writes it: `hf://NAME@REVISION/PATH`."""
        at = "" if self.revision == "main" else f"@{self.revision}"
        return f"hf://{self.model}{at}" + (f"/{self.path}" if self.path else "")


def hub_model(text: str) -> HubModel | None:
    """The model that a text names; None where the text is a path.

    Raises:
        UserError: it begins as a name of the hub does, and is none.
    """
    # A path keeps no slash at its end: hf:// alone became hf:.
    if not text.startswith(SCHEME) and text != SCHEME.rstrip("/"):
        return None
    match = _MODEL.fullmatch(text)
    path = "" if match is None else match["path"] or ""
    if match is None or ".." in path.split("/") or (path and not path.endswith(_SUFFIXES)):
        raise UserError(f"{printable(text, 200)} names no model: {_FORM}")
    return HubModel(match["model"], match["revision"] or "main", path)


def download(wanted: HubModel, notice: Callable[[str], None] = lambda line: None) -> Path:
    """The folder or file on this machine; what was downloaded before is not fetched again.

    Args:
        wanted: the model.
        notice: gets a line about the commit, and about a model that is used as it was before.

    Raises:
        UserError: there is no such model, it needs a licence to be accepted, or there is no network.
        ModelFileError: the model has no safetensors, or no such file.
        EngineError: `huggingface_hub` is not installed.
    """
    # Read when the library is imported; lines of our own say what comes, and what is wrong.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")
    try:
        import httpx2
        import huggingface_hub as hub
        from huggingface_hub import constants, errors
    except ImportError as error:
        raise EngineError(
            f"{wanted.text}: huggingface_hub is not installed: pip install 'edgetlm[torch]'"
        ) from error
    patterns = (
        [wanted.path, f"{wanted.path}_data", f"{wanted.path}.data"] if wanted.path else list(_FOLDER_FILES)
    )
    asked: dict[str, Any] = {"revision": wanted.revision, "allow_patterns": patterns}
    try:
        _check(wanted, hub.snapshot_download(wanted.model, dry_run=True, **asked), constants.HF_HUB_CACHE)
        folder = Path(hub.snapshot_download(wanted.model, **asked))
    except (errors.HfHubHTTPError, errors.XetDownloadError, httpx2.HTTPError, OSError, ValueError) as error:
        refused = _refusal(wanted, error, errors)
        if refused is not None:
            raise refused from error
        folder = _before(wanted, patterns, error, hub)
        notice(f"{wanted.text} cannot be asked for ({_reason(error)}): what was downloaded before is used")
    notice(f"{wanted.text} is commit {folder.name[:12]}")
    return folder / wanted.path if wanted.path else folder


def _refusal(wanted: HubModel, error: BaseException, errors: Any) -> UserError | None:
    """The hub's description of the model; None where the hub was not reached.

    The library wraps the hub's answer in an error about the network.
    """
    found: BaseException | None = error
    seen: set[int] = set()
    # Errors may be causes of each other.
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        if isinstance(found, errors.GatedRepoError):
            return UserError(
                f"{wanted.text}: its owner asks to accept terms: do so on its page, and set HF_TOKEN"
            )
        if isinstance(found, errors.RevisionNotFoundError):
            return UserError(f"{wanted.text}: there is no revision {wanted.revision!r}: see its page")
        if isinstance(found, errors.RepositoryNotFoundError):
            return UserError(
                f"{wanted.text}: there is no such model, or it is private: see its name, and set HF_TOKEN"
            )
        if isinstance(found, errors.HFValidationError):
            return UserError(f"{wanted.text}: {printable(_reason(error), 200)}: {_FORM}")
        found = found.__cause__ or found.__context__
    return None


def _check(wanted: HubModel, files: Sequence[Any], cache: str) -> None:
    """Refuse what is no model, or does not fit the disk, before it is downloaded."""
    names = [str(one.filename) for one in files]
    if wanted.path:
        if wanted.path not in names:
            raise ModelFileError(f"{wanted.text}: the model has no such file")
    elif "config.json" not in names or not any(name.endswith(".safetensors") for name in names):
        raise ModelFileError(
            f"{wanted.text}: it has no config.json with *.safetensors; weights in pickles are not read: name "
            "a file of it, as in hf://ORG/MODEL/onnx/model.onnx, or another model"
        )
    needed = sum(int(one.file_size) for one in files if one.will_download)
    existing = next(one for one in (Path(cache), *Path(cache).parents) if one.exists())
    free = shutil.disk_usage(existing).free - _MARGIN_BYTES
    if needed > free:
        raise UserError(
            f"{wanted.text} has {needed / 1e9:.1f} GB, and {cache} has space for {max(0, free) / 1e9:.1f} GB:"
            " free some, or set HF_HOME to a larger disk"
        )


def _before(wanted: HubModel, patterns: Sequence[str], error: Exception, hub: Any) -> Path:
    """The folder of an earlier download, which is used where the hub cannot be reached.

    Raises:
        UserError: the model was not downloaded before.
    """
    try:
        folder = Path(
            hub.snapshot_download(
                wanted.model, revision=wanted.revision, allow_patterns=list(patterns), local_files_only=True
            )
        )
    except (OSError, ValueError):
        folder = Path()
    if not (folder / (wanted.path or "config.json")).is_file() or folder == Path():
        raise UserError(
            f"{wanted.text} cannot be downloaded ({_reason(error)}), and was not before: download it where "
            "there is a network, and give the folder"
        ) from error
    return folder


def _reason(error: BaseException) -> str:
    if os.environ.get("HF_HUB_OFFLINE", "") not in ("", "0"):
        return "HF_HUB_OFFLINE is set"
    lines = str(error).strip().splitlines()
    return printable(lines[0], 200) if lines else type(error).__name__
