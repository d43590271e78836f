"""A language model's folder: configuration, where the weights lie, tokenizer, tokens that end a text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from device_agent.contract.limits import LIMITS
from device_agent.contract.manifest import TOKENIZER
from device_agent.contract.text import printable
from host.errors import ImportFailed, ModelFileError
from host.importers.decoders.chat import read_chat
from host.importers.decoders.config import MAX_VOCABULARY, Config
from host.importers.decoders.description import HEAD, DecoderWeights, Product
from host.importers.decoders.packed.layout import FIELD, read_layout
from host.importers.decoders.packed.tensor import packed_tensors
from host.importers.decoders.safetensors_file import StoredTensor, read_header
from host.language_file import CONFIG_BYTES, folder_config, saved_object

_INDEX_BYTES = LIMITS.model.directory_bytes
_WHOLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_ADAPTER = "adapter_model.safetensors"
_MAX_END_TOKENS = 64
# Ends of names of tables in files of earlier releases of transformers, which computes them now.
_TABLES = (".rotary_emb.inv_freq", ".masked_bias")
_MATRIX = 2
# Of a vector that no model has.
_LOOKED_AT_BYTES = 1 << 16
_WITHOUT_TOKENIZER = (
    f"The bundle has no tokenizer, as the folder has no {TOKENIZER}: add the model's own, written by "
    "AutoTokenizer.from_pretrained(MODEL).save_pretrained(FOLDER), or give prompts as numbers of tokens."
)
# Ends of classes of transformers without the head that gives the next token.
_HEADS = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "ForRewardModel")


@dataclass(frozen=True, eq=False)
class ModelFolder:
    """The content of a folder of transformers.

    Attributes:
        path: of the folder, or of a GGUF file, which is read as the folder that it was made of.
        config: its config.json.
        weights: by name.
        weight_files: that the weights lie in.
        tokenizer: its tokenizer.json, or the content of one; None without.
        end_tokens: that end a text.
        exact: whether weights that the model does not have are an error.
        notes: lines about what is not deployed as it is in the files.
        chat: content of a bundle's file of chat templates; None without.
        chat_files: that it was made of, beside the weights.
    """

    path: Path
    config: Config
    weights: Mapping[str, StoredTensor]
    weight_files: tuple[Path, ...]
    tokenizer: Path | bytes | None
    end_tokens: tuple[int, ...]
    exact: bool = False
    notes: tuple[str, ...] = ()
    chat: bytes | None = None
    chat_files: tuple[Path, ...] = ()

    @property
    def name(self) -> str:
        """Name of the model: that of its folder or file."""
        return self.path.resolve().name.removesuffix(".gguf")

    @property
    def bits(self) -> int:
        """Bits of weights that are quantised in the files: the most that one has; 0 for none."""
        forms = (tensor.form for tensor in self.weights.values())
        return max((form.bits for form in forms if form is not None), default=0)

    def check(self, tensors: Iterable[tuple[str, tuple[int, ...]]]) -> None:
        """Refuse a folder without the weights of its model, or with others where it is to be exact.

        Args:
            tensors: name and shape of each.

        Raises:
            ModelFileError: one is missing, or has another shape.
            ImportFailed: there is another one.
        """
        wanted = dict(tensors)
        for name in self.weights if self.exact else ():
            if name not in wanted:
                raise self.config.unsupported(f"weight {name!r}")
        for name, shape in wanted.items():
            found = self.weights.get(name)
            if found is None and f"{name.removesuffix('weight')}qweight" in self.weights:
                raise ModelFileError(
                    f"{self.path}: its weights are packed (GPTQ or AWQ), and config.json has no {FIELD}: "
                    "add it, with the fields of quantize_config.json or quant_config.json"
                )
            if found is None:
                raise ModelFileError(
                    f"{self.path}: weight {printable(name, 100)!r} {list(shape)} is missing in the "
                    "files: download them again"
                )
            if found.shape != shape:
                raise ModelFileError(
                    f"{self.path}: weight {printable(name, 100)!r} has shape {list(found.shape)}, "
                    f"the configuration makes it {list(shape)}: give the one that belongs to the weights"
                )

    def unused(self, weights: DecoderWeights) -> tuple[str, ...]:
        """Names of weights in the files that the model has none of: `check` refuses them where it is exact.

        Tables that old programs stored, a head that is the embedding, and vectors of zeros change nothing.

        Raises:
            OSError: a file cannot be read.
        """
        wanted = {HEAD, *(name for name, _ in weights.tensors())}
        others = ((name, one) for name, one in self.weights.items() if name not in wanted)
        return tuple(
            name
            for name, one in others
            if len(one.shape) in (1, _MATRIX)
            and not name.endswith(_TABLES)
            and (len(one.shape) == _MATRIX or _begins_with_more_than_zeros(one))
        )

    def with_own_head(self, weights: DecoderWeights) -> DecoderWeights:
        """The weights, no longer tied where the files have a head that differs from the embedding.

        Transformers takes such a head in spite of `tie_word_embeddings`. Where both are tied and the files
        have them by the name of the head alone, as safetensors itself writes tensors that are shared, that
        name is the embedding's too.

        Raises:
            OSError: a file cannot be read.
        """
        embedding, head = weights.embedding.parts[0], self.weights.get(HEAD)
        stored = self.weights.get(embedding.name)
        if weights.head != weights.embedding or head is None:
            return weights
        own = Product((replace(embedding, name=HEAD),))
        if stored is None:
            return replace(weights, embedding=own, head=own)
        return weights if head.equals(stored) else replace(weights, head=own)

    def files(self) -> tuple[Path, ...]:
        """All files that the model is made of."""
        tokenizer = self.tokenizer if isinstance(self.tokenizer, Path) else None
        others = (self.path / "config.json", self.path / "generation_config.json", tokenizer)
        own = (path for path in others if path is not None and path.is_file())
        return (*own, *self.chat_files, *self.weight_files)


def read_folder(path: Path) -> ModelFolder:
    """Look at a folder.

    Raises:
        ModelFileError: no folder, or one without config.json or weights, or with damaged ones.
        ImportFailed: its model gives something else than the next token.
        OSError: it cannot be read.
    """
    if not path.is_dir():
        raise ModelFileError(f"{path}: no such folder: give a folder with config.json and *.safetensors")
    if not (path / "config.json").is_file():
        raise ModelFileError(
            f"{path}: the folder has no config.json: give a folder that save_pretrained wrote"
        )
    config = Config(path.resolve(), folder_config(path))
    _require_language_model(config)
    weights = _weights(path)
    files = tuple(sorted({tensor.path for tensor in weights.values()}))
    layout = read_layout(config)
    if layout is not None:
        weights = packed_tensors(path, layout, weights)
        config = Config(path.resolve(), {key: one for key, one in config.values.items() if key != FIELD})
    tokenizer = path / TOKENIZER
    known = tokenizer.is_file()
    if tokenizer.is_symlink() and not known:
        raise ModelFileError(f"{path}: {TOKENIZER} is a link to no file: download it again, or remove it")
    chat, chat_files = read_chat(path)
    return ModelFolder(
        path,
        config,
        weights,
        files,
        tokenizer if known else None,
        _end_tokens(path, config),
        notes=() if known else (_WITHOUT_TOKENIZER,),
        chat=chat,
        chat_files=chat_files,
    )


def _begins_with_more_than_zeros(tensor: StoredTensor) -> bool:
    with tensor.path.open("rb") as stream:
        stream.seek(tensor.begin)
        return any(stream.read(min(tensor.end - tensor.begin, _LOOKED_AT_BYTES)))


def _require_language_model(config: Config) -> None:
    """Refuse a model of a known architecture that gives something else than the next token."""
    classes = config.values.get("architectures")
    name = str(classes[0]) if isinstance(classes, list) and classes else ""
    bare = name.endswith("Model") and not name.endswith(("LMHeadModel", "DoubleHeadsModel"))
    if bare or name.endswith(_HEADS):
        shown = printable(name, 100)
        raise ImportFailed(
            f"{config.where}: {shown} gives no next token: give a model that was saved as one of "
            "transformers' classes ForCausalLM",
            shown,
        )


def _weights(folder: Path) -> dict[str, StoredTensor]:
    if (folder / _INDEX).is_file():
        return _indexed(folder)
    files = [folder / _WHOLE]
    if not files[0].is_file():
        files = sorted(entry for entry in folder.glob("*.safetensors") if entry.is_file())
    if not files or files[0].name == _ADAPTER:
        raise ModelFileError(_without_weights(folder))
    if len(files) > 1:
        raise ModelFileError(
            f"{folder}: it has {len(files)} safetensors files and no {_INDEX}: download the folder again"
        )
    return read_header(files[0])


def _indexed(folder: Path) -> dict[str, StoredTensor]:
    """The weights of several files, where the index says that they are."""
    index = Config(f"{folder.name}: {_INDEX}", saved_object(folder / _INDEX, _INDEX_BYTES))
    places = index.text_map("weight_map")
    names = sorted(set(places.values()))
    if len(names) > LIMITS.model.weight_files:
        raise index.error(f"it names {len(names)} files, at most {LIMITS.model.weight_files} are read")
    headers = {}
    for name in names:
        file = folder / name
        # A name with a separator would lead out of the folder; a link may, as caches of downloads have them.
        if not name.endswith(".safetensors") or Path(name).name != name or "\\" in name:
            raise ModelFileError(
                f"{folder}: {_INDEX} names {printable(name, 100)!r}, no safetensors file of the folder"
            )
        if not file.is_file():
            raise ModelFileError(f"{folder}: {printable(name, 100)} is missing: download the folder again")
        headers[name] = read_header(file)
    found = {}
    for weight, name in places.items():
        if weight not in headers[name]:
            raise ModelFileError(
                f"{folder}: weight {printable(weight, 100)!r} is not in {printable(name, 100)}: "
                "download the folder again"
            )
        found[weight] = headers[name][weight]
    return found


def _without_weights(folder: Path) -> str:
    if (folder / _ADAPTER).is_file():
        return (
            f"{folder}: it holds an adapter (LoRA) and not the model: merge both in Python with peft's "
            "merge_and_unload(), and write the result with save_pretrained"
        )
    lost = next((one for one in folder.glob("*.safetensors") if one.is_symlink() and not one.exists()), None)
    if lost is not None:
        return f"{folder}: {printable(lost.name, 100)} is a link to no file: download the weights again"
    if any(folder.glob("pytorch_model*.bin")):
        return (
            f"{folder}: its weights are pickles (pytorch_model.bin), which are not read: load the model in "
            "transformers and write it with save_pretrained(folder, safe_serialization=True)"
        )
    return (
        f"{folder}: the folder has no *.safetensors: download the weights, or write them with save_pretrained"
    )


def _end_tokens(folder: Path, config: Config) -> tuple[int, ...]:
    """`eos_token_id` of generation_config.json, or else of config.json: one number or several."""
    generation = folder / "generation_config.json"
    if generation.is_file():
        fields = Config(f"{folder.name}: {generation.name}", saved_object(generation, CONFIG_BYTES))
        if fields.has("eos_token_id"):
            return _tokens(fields)
    return _tokens(config) if config.has("eos_token_id") else ()


def _tokens(fields: Config) -> tuple[int, ...]:
    value = fields.values["eos_token_id"]
    values = value if isinstance(value, list) else [value]
    if len(values) > _MAX_END_TOKENS or any(
        type(one) is not int or not 0 <= one < MAX_VOCABULARY for one in values
    ):
        raise fields.wrong("eos_token_id", "a token or a short list of tokens")
    return tuple(dict.fromkeys(values))
