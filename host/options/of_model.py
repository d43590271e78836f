"""Which options go with which model: some are of language models, and some are not."""

from __future__ import annotations

from pathlib import Path

from device_agent.contract.text import printable
from host.errors import UserError
from host.language_file import ENCODER, folder_config, is_language_model
from host.options.compile import GROUPS, CompileOptions


def check_for_model(options: CompileOptions, model: Path, format_name: str) -> None:
    """Refuse what does not go with a model.

    Args:
        options: of the compilation.
        model: a file or a folder.
        format_name: of the model, by `host.model_file.detect_format`.

    Raises:
        UserError: says what to type instead.
    """
    # Bundles do not come here: they know their range themselves.
    if options.lengths and not options.ranged:
        raise UserError("--lengths goes with a range of lengths, as in --shape seq=1..512")
    if is_language_model(format_name):
        _require_none(
            {
                "--shape": bool(options.shapes),
                "--value": bool(options.values),
                f"--dtype {options.dtype}": options.dtype not in ("fp32", "fp16"),
            },
            "does not go",
        )
        if options.calibration is not None and options.quantize != "int4":
            raise UserError(
                "--calibration of a language model goes with --quantize int4: give both, or leave it out"
            )
        if options.dtype == "fp16" and options.quantize:
            raise UserError(
                f"--dtype fp16 does not go with --quantize {options.quantize}: leave one of them out"
            )
        if options.cache and (options.dtype == "fp16" or options.processor == "gpu"):
            raise UserError(
                f"--cache {options.cache} is for CPUs, and goes without --dtype fp16: leave it out"
            )
        return
    _require_none(
        {
            "--context": options.context_tokens is not None,
            f"--cache {options.cache}": bool(options.cache),
            "--sequences": options.sequences != 1,
            "--text": options.text is not None,
            f"--group {options.group}": options.group != GROUPS[0],
            "--asymmetric": options.asymmetric,
        },
        "goes only",
        *(_of_folder(model) if format_name == ENCODER else ()),
    )
    if options.values:
        _check_values(options, format_name)
    if format_name == ENCODER and options.ranged:
        raise UserError(
            "a range in --shape needs an ONNX file with an open dimension: export the model to ONNX, or give"
            " one length, as in --shape sequence=128"
        )
    if format_name == "ultralytics" and options.ranged:
        raise UserError(
            "a range in --shape needs an ONNX file with an open dimension: type yolo export "
            f"model={model.name} format=onnx dynamic=True and give {model.stem}.onnx, or give one size, "
            "as in --shape height=320"
        )
    if options.quantize:
        _check_quantisation(options, model, format_name)


def _require_none(refused: dict[str, bool], what: str, why: str = "", instead: str = "") -> None:
    for flag, given in refused.items():
        if given:
            raise UserError(f"{flag} {what} with a language model{why}: leave {flag} out{instead}")


def _of_folder(model: Path) -> tuple[str, str]:
    """Why a folder of transformers is no language model, and what would be: it may be one with images too."""
    classes = folder_config(model)["architectures"]
    return (
        f", and {printable(model)} has a {printable(str(classes[0]), 100)}",
        ", or save the text model of it alone, as one of transformers' classes ForCausalLM",
    )


def _check_values(options: CompileOptions, format_name: str) -> None:
    """Refuse to fix inputs where nothing can."""
    if format_name != "onnx":
        raise UserError("--value goes only with an ONNX file: export the model to ONNX, or leave --value out")
    for other, given in {
        f"--quantize {options.quantize}": bool(options.quantize),
        "a range of lengths": options.ranged,
    }.items():
        if given:
            raise UserError(f"--value does not go with {other}: leave one of them out")


def _check_quantisation(options: CompileOptions, model: Path, format_name: str) -> None:
    """Refuse to quantise a model that is no language model where that cannot be."""
    asked = f"--quantize {options.quantize}"
    if format_name in ("pt2", ENCODER):
        raise UserError(
            f"{asked}: a PyTorch model is quantised as ONNX: in Python, torch.onnx.export(model, (inputs,), "
            f"{model.with_suffix('.onnx').name!r}, dynamo=True), and deploy that file"
        )
    if format_name == "tflite":
        raise UserError(
            f"{asked}: a TFLite model is quantised when it is made, as with ai-edge-quantizer: deploy the "
            "quantised file without --quantize"
        )
    if options.quantize == "int4":
        raise UserError(f"{asked} goes only with a language model: use --quantize int8")
    if options.calibration is None:
        raise UserError(
            f"{asked}: an ONNX model needs samples of its inputs: give --calibration DIR or FILE.npz"
        )
    if not options.calibration.exists():
        raise UserError(f"--calibration {printable(options.calibration)}: there is no such file or folder")
    for other, given in {
        f"--dtype {options.dtype}": options.dtype != "fp32",
        "a range of lengths": options.ranged,
    }.items():
        if given:
            raise UserError(f"{asked} does not go with {other}: leave one of them out")
