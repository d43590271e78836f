"""Bundles behind the calls of ONNX Runtime's `InferenceSession`, for programs that are written for it.

    import device_agent.inference_session as ort
    session = ort.InferenceSession("/path/to/bundle")
    [scores] = session.run(None, {"pixel_values": image})

Names, shapes and types are those of ONNX Runtime's Python API, as far as they mean something for a compiled
model; what does not is refused in one line. Nothing of ONNX Runtime is needed. On the host,
`sdk.inference_session` takes ONNX files as well.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from device_agent.execute.model_signature import TensorInfo
from device_agent.runtime import BundleError, load

__all__ = [
    "BundleError",
    "InferenceSession",
    "NodeArg",
    "SessionOptions",
    "get_available_providers",
    "get_device",
]

PROVIDER = "EdgeTLMExecutionProvider"
# What a program may also name: the processor that the bundle is for, CPU or GPU.
_PROCESSORS = ("CPUExecutionProvider", "CUDAExecutionProvider")
_PROVIDER_OPTIONS = ("trust", "keys")
_TYPES = {"float32": "float", "float64": "double"}
# Settings of ONNX Runtime's own planning: programs set them, and a compiled model has nothing of the kind.
_WITHOUT_EFFECT = (
    *("enable_cpu_mem_arena", "enable_mem_pattern", "enable_mem_reuse", "execution_mode", "execution_order"),
    *("graph_optimization_level", "inter_op_num_threads", "log_severity_level", "log_verbosity_level"),
    *("logid", "use_deterministic_compute"),
)
_INSTEAD = {"io_binding": "call run with arrays, from which inputs are copied"}
Provider = Union[str, Tuple[str, Mapping[str, Any]]]


class NodeArg(NamedTuple):
    """An input or output.

    Attributes:
        name: of the tensor.
        shape: sizes; the name of the dimension where a range of lengths is served.
        type: as ONNX Runtime writes it: "tensor(float)".
    """

    name: str
    shape: List[Union[int, str]]
    type: str


class SessionOptions:
    """Settings of a session.

    `intra_op_num_threads` are the threads of the model; 0 takes those that the bundle was measured with.
    Settings of ONNX Runtime's own planning, such as `graph_optimization_level`, are taken and have no effect.
    Others are refused.
    """

    def __init__(self) -> None:
        self.intra_op_num_threads = 0
        self.free_dimensions: Dict[str, int] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in ("intra_op_num_threads", "free_dimensions", *_WITHOUT_EFFECT):
            raise _refused("the setting %s" % name, "leave it out")
        object.__setattr__(self, name, value)

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Give an open dimension of an ONNX file a size; a bundle has its sizes already."""
        self.free_dimensions[name] = int(size)

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Taken, without effect: the entries are about ONNX Runtime's own planning."""

    def __getattr__(self, name: str) -> Any:
        raise _refused("the setting %s" % name, "leave it out")


class InferenceSession:
    """A loaded bundle with the calls of ONNX Runtime's session of this name.

    Args:
        path_or_bytes: directory of the bundle.
        sess_options: `SessionOptions` of this module or of ONNX Runtime, of which the threads count.
        providers: names in any order; one has to be "EdgeTLMExecutionProvider" or that of the bundle's
            processor ("CPUExecutionProvider"). A name may come with options, as in
            `("EdgeTLMExecutionProvider", {"trust": "unsigned"})`: `trust` and `keys` of
            `device_agent.runtime.load`.
        provider_options: the same options, one mapping for each provider.

    Raises:
        BundleError: the bundle is damaged, not trusted, or none.
        AgentError: its engine is not installed.
        ValueError: no provider fits, or an option means nothing.
    """

    def __init__(
        self,
        path_or_bytes: Union[str, bytes, "os.PathLike[str]"],
        sess_options: Optional[Any] = None,
        providers: Optional[Sequence[Provider]] = None,
        provider_options: Optional[Sequence[Mapping[str, Any]]] = None,
    ) -> None:
        self._options = SessionOptions() if sess_options is None else sess_options
        named = _named_providers(providers, provider_options)
        own = named.get(PROVIDER, {})
        threads = int(getattr(self._options, "intra_op_num_threads", 0)) or None
        keys = own.get("keys")
        self._model = load(_folder(path_or_bytes), threads, str(own.get("trust", "signed")), keys)
        machine = self._model.machine
        _check_providers(named, _PROCESSORS[machine is not None and machine.on_gpu])
        self._provider_options = {PROVIDER: {"backend": self._model.backend, "bundle": self._model.path}}

    def run(
        self,
        output_names: Optional[Sequence[str]],
        input_feed: Mapping[str, Any],
        run_options: Optional[Any] = None,
    ) -> List[Any]:
        """One inference.

        Args:
            output_names: the outputs that are wanted, in this order; None or none at all for all of them.
            input_feed: arrays by input name.
            run_options: taken for compatibility, and not used.

        Returns:
            The outputs, as NumPy arrays.

        Raises:
            ValueError: an input is missing, unknown or does not fit, or there is no such output.
        """
        known = [info.name for info in self._model.signature.outputs]
        wanted = list(output_names or known)
        for name in wanted:
            if name not in known:
                raise ValueError("the model has no output %r: it has %s" % (name, ", ".join(known)))
        outputs = self._model.run(input_feed)
        return [outputs[name] for name in wanted]

    def get_inputs(self) -> List[NodeArg]:
        """The inputs in the model's order."""
        return [self._node(info) for info in self._model.signature.inputs]

    def get_outputs(self) -> List[NodeArg]:
        """The outputs in the model's order."""
        return [self._node(info) for info in self._model.signature.outputs]

    def get_providers(self) -> List[str]:
        """The one provider there is."""
        return [PROVIDER]

    def get_provider_options(self) -> Dict[str, Dict[str, str]]:
        """The options of the provider: what runs the bundle, and its folder."""
        return self._provider_options

    def get_session_options(self) -> Any:
        """The settings that the session was made with."""
        return self._options

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise _refused(name, _INSTEAD.get(name, "use run, get_inputs, get_outputs and get_providers"))

    def _node(self, info: TensorInfo) -> NodeArg:
        length = self._model.signature.length
        shape: List[Union[int, str]] = [
            length.name if length is not None and axis in info.open else size
            for axis, size in enumerate(info.shape)
        ]
        return NodeArg(info.name, shape, "tensor(%s)" % _TYPES.get(info.dtype, info.dtype))


def get_available_providers() -> List[str]:
    """The one provider there is."""
    return [PROVIDER]


def get_device() -> str:
    """As in ONNX Runtime: the processor that is there in any case."""
    return "CPU"


def processor_identity() -> List[str]:
    """The kind, name and features of this machine's processor; another processor needs another bundle."""
    from device_agent.board.machine import Machine

    described = Machine().describe()
    return [
        str(described["machine"]),
        str(described["cpu_name"]),
        *sorted(str(name) for name in described["features"]),
    ]


def _folder(given: Union[str, bytes, "os.PathLike[str]"]) -> str:
    if isinstance(given, bytes):
        raise BundleError("a model in memory cannot be loaded here: give the directory of a bundle")
    path = os.fspath(given)
    if os.path.isfile(path):
        raise BundleError(
            "%s is a file: on the host, sdk compile FILE -o BUNDLE --target NAME makes the directory that is"
            " loaded here, and sdk.inference_session takes the file itself" % path
        )
    return path


def _named_providers(
    providers: Optional[Sequence[Provider]], options: Optional[Sequence[Mapping[str, Any]]]
) -> Dict[str, Mapping[str, Any]]:
    """Options by the name of the provider."""
    given = list(providers or ())
    beside = list(options or [{}] * len(given))
    if len(beside) != len(given):
        raise ValueError("provider_options: give one mapping for each of the providers")
    named: Dict[str, Mapping[str, Any]] = {}
    for one, own in zip(given, beside):
        name, more = (one, {}) if isinstance(one, str) else one
        named[name] = {**own, **more}
    for key in named.get(PROVIDER, {}):
        if key not in _PROVIDER_OPTIONS:
            raise ValueError("%s has no option %r: it has %s" % (PROVIDER, key, ", ".join(_PROVIDER_OPTIONS)))
    return named


def _check_providers(named: Mapping[str, Any], processor: str) -> None:
    if named and PROVIDER not in named and processor not in named:
        raise ValueError(
            "providers %s: the bundle runs by %s on %s: name one of the two, or leave providers out"
            % (", ".join(named), PROVIDER, processor)
        )


def _refused(what: str, instead: str) -> AttributeError:
    """Programs ask by `hasattr` what a session can do, so what it cannot is no attribute."""
    return AttributeError("%s is not part of sessions of bundles: %s" % (what, instead))
