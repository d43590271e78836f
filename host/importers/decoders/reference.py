"""Logits of a language model in float32, by transformers, in a process of its own.

The process takes the memory of torch with it when it ends. It reads local files only, safetensors only, and
runs no code of the folder. Quantised weights are replaced by the values that they stand for. Of a GGUF file
or packed weights, which transformers does not read by itself, the model is built from its
configuration and gets its weights.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from host.errors import EngineError
from host.importers.decoders.description import Matrix
from host.importers.decoders.folder import ModelFolder, read_folder
from host.importers.decoders.gguf.model import read_gguf
from host.importers.decoders.quantise import Form, Quantised, QuantisedPart, dequantise
from host.language_file import language_format

_FILES = ("plan.json", "weights.npz", "answers.npz", "error.json")
_OFFLINE = {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


@dataclass(frozen=True, eq=False)
class Questions:
    """The inputs for which transformers computes references.

    Attributes:
        texts: (n) int32 tokens each; the logits behind each token are wanted.
        text: (n) int32, one whose logits are also wanted by the weights in the files; None without.
        prompt: tokens at the beginning of `text` that are continued.
        count: tokens of the continuation, the likeliest each time.
        rounded: weights whose products are given rounded activations, by their names in the files: the logits
            behind such a beginning of the last of `texts` are wanted too. None without.
        beginning: tokens of that beginning, fewer than the text has.
        halves: whether the matrices are rounded to half precision, as the compiled model's are.
    """

    texts: tuple[np.ndarray, ...]
    text: np.ndarray | None = None
    prompt: int = 0
    count: int = 0
    rounded: tuple[str, ...] = ()
    beginning: int = 0
    halves: bool = False


@dataclass(frozen=True, eq=False)
class Answers:
    """The references that transformers computed.

    Attributes:
        logits: (n, V) float32 of each of `texts`, by the quantised or rounded weights.
        text: (n, V) of `text` by the same weights; None without.
        original: (n, V) of `text` by the weights in the files; None without, or where these are quantised.
        greedy: tokens that continue the prompt, by the same weights.
        rounded: (m, V) behind the tokens of the last text after the beginning, where products of the
            beginning have activations that are rounded to bytes; None where that was not asked for.
        half_spread: how far rounding to halves moves logits behind the last text, as a share of the largest.
    """

    logits: tuple[np.ndarray, ...]
    text: np.ndarray | None = None
    original: np.ndarray | None = None
    greedy: tuple[int, ...] = ()
    rounded: np.ndarray | None = None
    half_spread: float = 0.0


def reference_logits(folder: Path, tokens: np.ndarray, quantised: Iterable[QuantisedPart]) -> np.ndarray:
    """The logits (n, V) float32 after each of the tokens (n) of one text; see `reference_answers`."""
    return reference_answers(folder, Questions((tokens,)), quantised).logits[0]


def reference_answers(
    folder: Path,
    questions: Questions,
    quantised: Iterable[QuantisedPart],
    *,
    time_limit_s: float = 1800.0,
) -> Answers:
    """The references that transformers computes in float32, in a process of its own.

    Args:
        folder: of the model, or a GGUF file.
        questions: what is wanted.
        quantised: matrices to replace.
        time_limit_s: after this the process is killed.

    Raises:
        EngineError: transformers refused the model, crashed or took too long.
    """
    with tempfile.TemporaryDirectory(prefix="edgetlm-reference-") as directory:
        files = [Path(directory, name) for name in _FILES]
        _write(files[0], files[1], folder, questions, quantised)
        _run_apart(folder, Path(directory), time_limit_s)
        return _answers(files[2], len(questions.texts))


def _run_apart(folder: Path, directory: Path, time_limit_s: float) -> None:
    """Have a process of its own write the answers to the plan in a folder.

    Raises:
        EngineError: it did not.
    """
    command = [sys.executable, "-m", "host.importers.decoders.reference", str(directory)]
    try:
        result = subprocess.run(
            command,
            cwd=Path(__file__).resolve().parents[3],
            env={**os.environ, **_OFFLINE},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=time_limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise EngineError(
            f"{folder.name}: transformers gave no logits within {time_limit_s:.0f} s: "
            "give a smaller model, or use a faster machine"
        ) from None
    if result.returncode != 0:
        raise EngineError(f"{folder.name}: {_failure(folder, result, directory / _FILES[3])}")


def _write(
    plan: Path, archive: Path, folder: Path, questions: Questions, quantised: Iterable[QuantisedPart]
) -> None:
    parts: list[dict[str, Any]] = []
    arrays: dict[str, np.ndarray] = {}
    for number, part in enumerate(quantised):
        matrix = part.matrix
        stored = part.values.arrays
        parts.append({"matrix": asdict(matrix), "form": asdict(part.values.form), "arrays": len(stored)})
        arrays |= {f"{number}/{place}": one for place, one in enumerate(stored)}
    np.savez(archive, **arrays)  # type: ignore[arg-type]
    request = {
        "folder": str(folder.resolve()),
        "parts": parts,
        "texts": [tokens.tolist() for tokens in questions.texts],
        "text": None if questions.text is None else questions.text.tolist(),
        "prompt": questions.prompt,
        "count": questions.count,
        "rounded": questions.rounded,
        "beginning": questions.beginning,
        "halves": questions.halves,
    }
    plan.write_text(json.dumps(request))


def _answers(archive: Path, texts: int) -> Answers:
    """Read the outputs that the reference process wrote."""
    with np.load(archive) as arrays:
        return Answers(
            tuple(np.asarray(arrays[str(number)]) for number in range(texts)),
            np.asarray(arrays["text"]) if "text" in arrays else None,
            np.asarray(arrays["original"]) if "original" in arrays else None,
            tuple(arrays["greedy"].tolist()) if "greedy" in arrays else (),
            np.asarray(arrays["rounded"]) if "rounded" in arrays else None,
            float(arrays["half_spread"]) if "half_spread" in arrays else 0.0,
        )


def _failure(folder: Path, result: subprocess.CompletedProcess[str], error: Path) -> str:
    """One line about why the process ended without logits."""
    if error.is_file():
        message = str(json.loads(error.read_text())["message"]).replace(str(folder.resolve()), "it")
        return f"transformers cannot run it: {' '.join(message.split())[:300]}"
    if result.returncode < 0:
        return f"transformers crashed on it ({signal.Signals(-result.returncode).name})"
    lines = [line for line in result.stderr.splitlines() if line.strip()]
    return f"transformers ended with code {result.returncode}: {lines[-1] if lines else 'no message'}"


def _run(directory: Path) -> int:
    """Compute the outputs in the reference process; returns its exit status."""
    plan, archive, answers, error = (directory / name for name in _FILES)
    try:
        request = json.loads(plan.read_text())
        np.savez(answers, **_computed(request, archive))  # type: ignore[arg-type]
    except Exception as failure:  # noqa: BLE001  # whatever transformers raises is reported to the parent
        error.write_text(json.dumps({"message": f"{type(failure).__name__}: {failure}"}))
        return 1
    return 0


def _computed(request: dict[str, Any], archive: Path) -> dict[str, np.ndarray]:
    """The arrays of the answers by their names."""
    path, text = Path(request["folder"]), request["text"]
    answers = {}
    read = read_gguf(path) if language_format(path) == "gguf" else read_folder(path)
    floats = not read.bits
    given = {entry["matrix"]["name"] for entry in request["parts"]}
    model = _model_of_folder(path) if floats and read.path.is_dir() else model_of_file(read, given)
    if text is not None and floats:
        answers["original"] = logits_of(model, text)
    with np.load(archive) as arrays:
        place(model, _parts(request["parts"], arrays))
    before = round_to_halves(model, request["texts"][-1]) if request["halves"] else None
    answers |= {str(number): logits_of(model, tokens) for number, tokens in enumerate(request["texts"])}
    if before is not None:
        last = answers[str(len(request["texts"]) - 1)]
        answers["half_spread"] = np.abs(before - last).max() / np.abs(before).max()
    if text is not None:
        unchanged = floats and not request["parts"] and not request["halves"]
        answers["text"] = answers["original"] if unchanged else logits_of(model, text)
        answers["greedy"] = np.array(_continued(model, text[: request["prompt"]], request["count"]))
    if request["rounded"]:
        groups = {entry["matrix"]["name"]: entry["form"]["group"] for entry in request["parts"]}
        groups = {name: group for name, group in groups.items() if name in request["rounded"]}
        answers["rounded"] = behind_rounded(model, request["texts"][-1], request["beginning"], groups)
    return answers


def _model_of_folder(path: Path) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(
        str(path),
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
        dtype=torch.float32,
        attn_implementation="eager",
    ).eval()


def _continued(model: Any, prompt: Sequence[int], count: int) -> list[int]:
    """The likeliest token each time, whatever the model's own settings of a generation say."""
    import torch

    made: list[int] = []
    given, cache = list(prompt), None
    with torch.inference_mode():
        while len(made) < count:
            result = model(input_ids=torch.tensor([given]), past_key_values=cache, use_cache=True)
            cache = result.past_key_values
            given = [int(result.logits[0, -1].argmax())]
            made += given
    return made


def model_of_file(read: ModelFolder, left: Collection[str] = ()) -> Any:
    """The model of transformers of a configuration, with the weights of a file that it cannot read.

    Args:
        read: the file.
        left: weights that `place` gives it.

    Raises:
        ValueError: the file and transformers do not have the same weights.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(**read.config.values)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    parameters = dict(model.named_parameters(remove_duplicate=False))
    placed = set()
    with torch.inference_mode():
        for name, tensor in read.weights.items():
            if not (read.exact or _named(parameters, name)):
                # As transformers does with weights of a folder that a model does not have.
                continue
            parameter = _parameter(parameters, name)
            placed.add(id(parameter))
            if name not in left:
                if tuple(parameter.shape) != tensor.shape:
                    raise ValueError(f"{name!r} has another shape")
                parameter.copy_(torch.from_numpy(tensor.read(name)))
    missing = [name for name, parameter in parameters.items() if id(parameter) not in placed]
    if missing:
        raise ValueError(f"the file has no {missing[0]!r}")
    return model


def _parts(entries: Sequence[dict[str, Any]], arrays: Mapping[str, np.ndarray]) -> Iterator[QuantisedPart]:
    for number, entry in enumerate(entries):
        stored = [arrays[f"{number}/{place}"] for place in range(entry["arrays"])]
        yield QuantisedPart(Matrix(**entry["matrix"]), Quantised.of(Form(**entry["form"]), stored))


def place(model: Any, quantised: Iterable[QuantisedPart]) -> None:
    """Set a model's matrices to the values that the quantised ones represent.

    Args:
        model: of transformers; it is changed.
        quantised: the matrices.

    Raises:
        ValueError: the model has no parameter of a matrix's name.
    """
    import torch

    parameters = dict(model.named_parameters(remove_duplicate=False))
    with torch.inference_mode():
        for part in quantised:
            values = torch.from_numpy(dequantise(part.values))
            values = values.T if part.matrix.transposed else values
            _parameter(parameters, part.matrix.name).copy_(values)


def round_to_halves(model: Any, tokens: Sequence[int]) -> np.ndarray:
    """Round a model's matrices to halves, as its compiled form has them; returns a text's logits before."""
    before = logits_of(model, tokens)
    for matrix in (one.data for one in model.parameters() if one.dim() > 1):
        matrix.copy_(matrix.half().float())
    return before


def logits_of(model: Any, tokens: Sequence[int]) -> np.ndarray:
    """The logits (n, V) float32 after each of the tokens of one text."""
    import torch

    with torch.inference_mode():
        made = model(input_ids=torch.tensor([list(tokens)]), use_cache=False).logits
    return np.asarray(made[0].float().numpy())


def behind_rounded(
    model: Any, tokens: Sequence[int], beginning: int, groups: Mapping[str, int]
) -> np.ndarray:
    """The logits behind the end of a text, whose first tokens have rounded activations.

    What products are given is rounded to bytes, each group by its largest absolute value, as
    `host.lowering.quantised.product` does it. Logits behind the tokens that are not rounded differ from exact
    ones by what the keys and values of the others do.

    Args:
        model: of transformers.
        tokens: of the text.
        beginning: number of those whose activations are rounded, fewer than all.
        groups: elements that share a scale, by the names of the weights of products.

    Returns:
        (m, V) float32, where m are the other tokens.
    """
    import torch

    def hook(group: int) -> Any:
        def rounded(_: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
            value, *others = given
            split = value.unflatten(-1, (-1, group))
            scale = split.abs().amax(-1, keepdim=True) / 127
            whole = torch.round(split / scale.clamp(min=1e-30))
            return ((whole * scale).flatten(-2), *others)

        return rounded

    parameters = dict(model.named_parameters(remove_duplicate=False))
    hooks = []
    for name, group in groups.items():
        parameter = _parameter(parameters, name)
        owner = next(key for key, one in parameters.items() if one is parameter)
        module = model.get_submodule(owner.rpartition(".")[0])
        hooks.append(module.register_forward_pre_hook(hook(group)))
    with torch.inference_mode():
        cache = model(input_ids=torch.tensor([list(tokens[:beginning])]), use_cache=True).past_key_values
        for one in hooks:
            one.remove()
        rest = torch.tensor([list(tokens[beginning:])])
        made = model(input_ids=rest, past_key_values=cache, use_cache=True).logits
    return np.asarray(made[0].float().numpy())


def _parameter(parameters: dict[str, Any], name: str) -> Any:
    """A parameter by its name in the files, which may lack the name of the model's body."""
    found = _named(parameters, name)
    if len(found) != 1:
        raise ValueError(f"{len(found)} parameters are called {name!r}")
    return parameters[found[0]]


def _named(parameters: dict[str, Any], name: str) -> list[str]:
    return [key for key in parameters if key == name or key.endswith(f".{name}")]


if __name__ == "__main__":
    sys.exit(_run(Path(sys.argv[1])))
