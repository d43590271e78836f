"""What `manifest.json` of a bundle must be like before anything is done by it.

The identity of a bundle is the SHA-256 of its manifest, and the manifest has the size and the SHA-256 of
every file: the identity decides every byte. What is checked here decides what runs and what memory is read;
the native executor checks the same (`device_agent/native/contract/manifest.cc`). Other fields are for people.

    schema        "edgetlm.bundle/2"; "edgetlm.bundle/3" where there is state: a runtime that does not know
                  of it would call main with too few arguments
    name          of the bundle: letters, digits, dot, dash and underscore
    backend       "tvm", "onnxruntime", "litert", or an engine of the board, "tensorrt-fp16"
    files         {name: {"size": bytes, "sha256": hexadecimal}}, all but the manifest and its signature
    model         which of the files is the library or the model
    threads       that it was measured with
    signature     {"inputs": [{"name", "shape", "dtype"}, ...], "outputs": [...]}; in a bundle for a range of
                  lengths also "open" of a tensor (its axes that are the length; "shape" has the greatest)
                  and "length" {"name", "low", "high"}
    state         tvm: [{"name", "shape", "dtype"}, ...], tensors that main takes behind its inputs and
                  changes: zeros when the model is loaded, kept from call to call
    decoder       of a language model: {"context", "chunk", "vocabulary", "end_tokens"}: main takes a token
                  and its position, both int32[1], and gives logits of the next, float32[1, vocabulary]; the
                  library's function "prefill" takes tokens int32[chunk], the position of the first and the
                  row whose logits are wanted, both int32[1]. With "long_chunk", its function "long_prefill"
                  does the same with tokens int32[long_chunk]. With "verified", its function "verify" takes
                  tokens int32[verified] and the position of the first, int32[1], and gives the logits behind
                  each, float32[verified, vocabulary]. All take the state and the parameters too. With
                  "sequences", a runtime keeps so many states, one of each text; the function "together" takes
                  a token of each text and their positions, int32[sequences] each, and the states of all
                  texts, one behind the other; it gives the logits of each, float32[sequences, vocabulary].
                  With "rounding", 8, "prefill" and "long_prefill" round activations to bytes and give no
                  logits: what the last token of a prompt gives is computed by main
    streamed      tvm: true where a call reads most of the parameters, and each about once: a runtime copies
                  them to huge pages where there are such and room; they are mapped from their file otherwise
    parameters    tvm: [{"offset", "nbytes", "shape", "dtype"}, ...] into params.bin, in the order of main's
                  arguments
    target        tvm: {"kind"}: "cuda" runs on the GPU, anything else on the CPU
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from device_agent.contract import strict_json
from device_agent.contract.limits import LIMITS
from device_agent.contract.protocol import PROTOCOL
from device_agent.contract.text import printable

SCHEMA = PROTOCOL.bundle.schema
STATE_SCHEMA = PROTOCOL.bundle.state_schema
# Engines that come with the board's system. Their bundles hold an ONNX file.
OF_THE_BOARD = PROTOCOL.bundle.board_backends
BACKENDS = (*PROTOCOL.bundle.backends, *OF_THE_BOARD)
MANIFEST = PROTOCOL.bundle.manifest
SIGNATURE = PROTOCOL.bundle.signature
PARAMETERS = PROTOCOL.bundle.parameters
TOKENIZER = PROTOCOL.bundle.tokenizer
# The functions that the library of a language model may have beside main.
PREFILL, LONG_PREFILL, VERIFY, TOGETHER = "prefill", "long_prefill", "verify", "together"
# What a bundle carries for people and checks; it decides nothing of what runs.
BESIDE = ("golden.npz", "tasks.json")
_CONTENT = ("backend", "model", "threads", "signature", "parameters", "target")
# Part of the content where they are there, so that other bundles keep their digests.
_CONTENT_OF_STATE = ("state", "decoder")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_BOUNDS = LIMITS.bundle


class ContractError(ValueError):
    """Something from elsewhere is not what it must be; the message is one line that can be shown."""


class FileEntry(NamedTuple):
    """A file as the manifest names it.

    Attributes:
        size: in bytes.
        sha256: in hexadecimal.
    """

    size: int
    sha256: str


class CheckedManifest(NamedTuple):
    """A manifest that passed.

    Attributes:
        fields: all of it.
        files: by name.
        model: name of the file that runs.
        backend: of BACKENDS.
        threads: that it was measured with.
    """

    fields: Dict[str, Any]
    files: Dict[str, FileEntry]
    model: str
    backend: str
    threads: int


def is_name(text: object) -> bool:
    """Whether a text can name a bundle, or a file in one: it names no other folder and hides nothing."""
    return isinstance(text, str) and len(text) <= _BOUNDS.name_characters and bool(_NAME.fullmatch(text))


def as_name(text: str) -> str:
    """The nearest name of a bundle to a text, such as the name of a model's file."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", text)[: _BOUNDS.name_characters]
    return name if is_name(name) else ("_" + name.lstrip(".-"))[: _BOUNDS.name_characters]


def is_digest(text: object) -> bool:
    """Whether a text is a SHA-256 in hexadecimal."""
    return isinstance(text, str) and bool(_DIGEST.fullmatch(text))


def check_manifest(data: bytes) -> CheckedManifest:
    """The manifest of a bundle, checked.

    Args:
        data: content of `manifest.json`.

    Raises:
        ContractError: it is none, of another version, or names what cannot be.
    """
    try:
        fields = strict_json.parse(data, _BOUNDS.manifest_bytes, MANIFEST)
    except ValueError as error:
        raise ContractError(str(error)) from error
    schema = fields.get("schema") if isinstance(fields, dict) else None
    if schema not in (SCHEMA, STATE_SCHEMA):
        raise ContractError(
            "it has the schema %s, this version reads %s and %s"
            % (printable(schema, 80), SCHEMA, STATE_SCHEMA)
        )
    _need(is_name(fields.get("name")), "its name is not made of letters, digits, dot, dash and underscore")
    backend = fields.get("backend")
    _need(isinstance(backend, str) and backend in BACKENDS, "its backend is none of %s" % ", ".join(BACKENDS))
    files = check_files(fields.get("files"))
    _need(isinstance(fields.get("model"), str) and fields["model"] in files, "its model is none of its files")
    threads = _whole(fields.get("threads"), "threads", 1, _BOUNDS.threads)
    _check_signature(fields.get("signature"))
    _check_parameters(fields.get("parameters", []), files, str(backend))
    _check_state(fields, str(backend))
    _need(isinstance(fields.get("streamed", False), bool), "whether its parameters are streamed is not said")
    target = fields.get("target", {})
    _need(isinstance(target, dict), "its target is not an object")
    _need(isinstance(target.get("kind", ""), str), "the kind of its target is not text")
    return CheckedManifest(fields, files, fields["model"], str(backend), threads)


def tensor_bytes(shape: Sequence[int], dtype: str) -> int:
    """Size of a tensor of a known type in bytes."""
    size = LIMITS.item_bytes[dtype]
    for dimension in shape:
        size *= dimension
    return size


def _need(condition: object, complaint: str) -> None:
    if not condition:
        raise ContractError(complaint)


def _whole(value: object, what: str, low: int, high: int) -> int:
    # A truth value is a whole number to Python and none to JSON.
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ContractError("%s is %s, not a whole number from %d to %d" % (what, _shown(value), low, high))
    return value


def _list(value: object, what: str, longest: int) -> List[Any]:
    if not isinstance(value, list) or len(value) > longest:
        raise ContractError("%s is not a list of at most %d" % (what, longest))
    return value


def _object(value: object, what: str) -> Dict[str, Any]:
    if not isinstance(value, dict):
        raise ContractError("%s is not an object" % what)
    return value


def _shown(value: object) -> str:
    return printable(repr(value), 60)


def check_files(value: object) -> Dict[str, FileEntry]:
    """The files that a manifest names, by name.

    Raises:
        ContractError: one has no size, no SHA-256, or a name of another folder; or they are too large.
    """
    entries = _object(value, "the list of files")
    _need(0 < len(entries) <= _BOUNDS.files, "it names %d files, not 1 to %d" % (len(entries), _BOUNDS.files))
    files = {}
    for name, fields in entries.items():
        _need(
            is_name(name) and name not in (MANIFEST, SIGNATURE),
            "it names the file %s outside of the bundle" % _shown(name),
        )
        entry = _object(fields, "the entry of %s" % name)
        size = _whole(entry.get("size"), "the size of %s" % name, 0, _BOUNDS.file_bytes)
        _need(is_digest(entry.get("sha256")), "the sha256 of %s is not a SHA-256" % name)
        files[name] = FileEntry(size, entry["sha256"])
    _need(sum(one.size for one in files.values()) <= _BOUNDS.total_bytes, "its files are too large")
    return files


def _check_signature(value: object) -> None:
    signature = _object(value, "the signature")
    for kind in ("inputs", "outputs"):
        for tensor in _list(signature.get(kind), kind, _BOUNDS.tensors):
            fields = _object(tensor, "one of the %s" % kind)
            name = fields.get("name")
            _need(isinstance(name, str), "one of the %s has no name" % kind)
            shape, _ = _tensor(fields, "%s of the %s" % (_shown(name), kind))
            for axis in _list(fields.get("open", []), "the open axes", _BOUNDS.rank):
                _whole(axis, "an open axis", 0, len(shape) - 1)
    length = signature.get("length")
    if length is not None:
        fields = _object(length, "the range of lengths")
        _need(isinstance(fields.get("name"), str), "the range of lengths has no name")
        low = _whole(fields.get("low"), "the least length", 1, _BOUNDS.dimension)
        _whole(fields.get("high"), "the greatest length", low, _BOUNDS.dimension)


def _tensor(fields: Dict[str, Any], what: str) -> Tuple[List[int], str]:
    """Shape and type of a tensor."""
    shape = _list(fields.get("shape"), "the shape of %s" % what, _BOUNDS.rank)
    for dimension in shape:
        _whole(dimension, "a dimension of %s" % what, 0, _BOUNDS.dimension)
    dtype = fields.get("dtype")
    _need(
        isinstance(dtype, str) and dtype in LIMITS.item_bytes,
        "the type of %s is %s, none of %s" % (what, _shown(dtype), ", ".join(LIMITS.item_bytes)),
    )
    _need(tensor_bytes(shape, str(dtype)) <= _BOUNDS.tensor_bytes, "%s is too large" % what)
    return shape, str(dtype)


def _check_parameters(value: object, files: Dict[str, FileEntry], backend: str) -> None:
    entries = _list(value, "the list of parameters", _BOUNDS.parameters)
    if not entries:
        return
    whole: Optional[FileEntry] = files.get(PARAMETERS)
    if whole is None or backend != "tvm":
        raise ContractError("it has parameters and no %s of the backend tvm" % PARAMETERS)
    for index, entry in enumerate(entries):
        what = "parameter %d" % index
        fields = _object(entry, what)
        shape, dtype = _tensor(fields, what)
        size = tensor_bytes(shape, dtype)
        offset = _whole(fields.get("offset"), "the offset of %s" % what, 0, whole.size)
        _need(offset % _BOUNDS.alignment == 0, "%s is not aligned" % what)
        nbytes = _whole(fields.get("nbytes"), "the size of %s" % what, 0, whole.size)
        _need(nbytes == size, "%s has not the size of its shape" % what)
        _need(size <= whole.size - offset, "%s does not fit %s" % (what, PARAMETERS))


def _check_state(fields: Dict[str, Any], backend: str) -> None:
    entries = _list(fields.get("state", []), "the state", _BOUNDS.tensors)
    _need(
        bool(entries) == (fields["schema"] == STATE_SCHEMA),
        "its schema is %s, and it has %d tensors of state" % (fields["schema"], len(entries)),
    )
    decoder = fields.get("decoder")
    if not entries:
        _need(decoder is None, "it has a decoder and no state")
        return
    _need(backend == "tvm", "it has state and a backend other than tvm")
    _need(fields["signature"].get("length") is None, "it has state and a range of lengths")
    total = 0
    for entry in entries:
        tensor = _object(entry, "one of the state")
        name = tensor.get("name")
        _need(isinstance(name, str), "one of the state has no name")
        total += tensor_bytes(*_tensor(tensor, "%s of the state" % _shown(name)))
    texts = 1
    if decoder is not None:
        texts = _check_decoder(_object(decoder, "the decoder"), fields["signature"])
    _need(texts * total <= _BOUNDS.state_bytes, "its state is too large")


def _check_decoder(decoder: Dict[str, Any], signature: Dict[str, Any]) -> int:
    """Checks what a language model has; returns the number of texts that have a state."""
    context = _whole(decoder.get("context"), "the context", 1, _BOUNDS.context)
    chunk = _whole(decoder.get("chunk"), "the chunk", 1, context)
    if "long_chunk" in decoder:
        _whole(decoder["long_chunk"], "the long chunk", chunk + 1, context)
    if "verified" in decoder:
        most = min(context, _BOUNDS.verified_tokens)
        _whole(decoder["verified"], "the tokens that are verified at once", 2, most)
    if "rounding" in decoder:
        _whole(decoder["rounding"], "the bits that a prefill rounds to", 8, 8)
    vocabulary = _whole(decoder.get("vocabulary"), "the vocabulary", 1, _BOUNDS.vocabulary)
    for token in _list(decoder.get("end_tokens"), "the tokens that end a text", _BOUNDS.end_tokens):
        _whole(token, "a token that ends a text", 0, vocabulary - 1)
    # Whoever generates text fills and reads these tensors without looking at the signature.
    taken = [(one["shape"], one["dtype"]) for one in signature["inputs"]]
    given = [(one["shape"], one["dtype"]) for one in signature["outputs"]]
    _need(
        taken == [([1], "int32"), ([1], "int32")] and given == [([1, vocabulary], "float32")],
        "its signature is not that of a decoder: a token and a position to logits",
    )
    if "sequences" not in decoder:
        return 1
    return _whole(decoder["sequences"], "the texts that have a state", 2, _BOUNDS.sequences)


def state_digest(manifest: CheckedManifest) -> str:
    """What the state of a text belongs to: a digest of what computes it.

    It is the SHA-256 of lines: "NAME SIZE SHA256" of each file that decides what runs, in the order of the
    names, then "DTYPE SIZExSIZE..." of each tensor of the state.
    """
    files = sorted((name, one) for name, one in manifest.files.items() if name not in BESIDE)
    lines = ["%s %d %s" % (name, one.size, one.sha256) for name, one in files]
    for tensor in manifest.fields.get("state") or ():
        lines.append("%s %s" % (tensor["dtype"], "x".join(map(str, tensor["shape"]))))
    return hashlib.sha256("".join(line + "\n" for line in lines).encode()).hexdigest()


def content_digest(fields: Dict[str, Any]) -> str:
    """A digest of what a bundle computes, which its figures and explanations do not change.

    Args:
        fields: of a checked manifest.
    """
    content = {name: fields.get(name) for name in _CONTENT}
    content.update((name, fields[name]) for name in _CONTENT_OF_STATE if fields.get(name))
    content["files"] = {name: entry for name, entry in fields["files"].items() if name not in BESIDE}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
