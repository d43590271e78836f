"""Runs an installed bundle: what an application on the board imports.

    import device_agent.runtime
    model = device_agent.runtime.load("/path/to/bundle")
    outputs = model.run({"input": array})

With the bundle of a language model:

    for piece in model.generate("The capital of France is", max_tokens=20):
        print(piece, end="", flush=True)

A bundle of the tvm backend needs `tvm_ffi` and libtvm_runtime.so; NumPy is optional. A bundle of another
backend needs that engine. Before anything of a bundle is used, its manifest, its signature and every file are
checked, and whether this device trusts its signer. The manifest's fields are described in
`device_agent.contract.manifest`.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from device_agent.contract.manifest import state_digest
from device_agent.execute import ffi
from device_agent.execute.decoder import Decoder
from device_agent.execute.engines import create
from device_agent.execute.generation import Generation, Timing, no_language_model
from device_agent.execute.model_signature import TensorInfo
from device_agent.execute.several.texts import Texts
from device_agent.execute.text.sampling import Sampler, Sampling
from device_agent.execute.text.stops import checked_stops
from device_agent.execute.virtual_machine import VirtualMachine, load_machine, signature_of, tensors_of
from device_agent.store.opened_bundle import BundleError, OpenedBundle, open_bundle
from device_agent.wire.frames import TensorData, tensor_bytes

__all__ = ["BundleError", "Model", "load"]
_FORMATS = {
    "?": "bool",
    "b": "int8",
    "B": "uint8",
    "h": "int16",
    "H": "uint16",
    "e": "float16",
    "i": "int32",
    "I": "uint32",
    "f": "float32",
    "l": "int64",
    "q": "int64",
    "L": "uint64",
    "Q": "uint64",
    "d": "float64",
}


class Model:
    """A bundle, loaded. Not for use by several threads at once; calls wait for one another.

    Args:
        opened: the bundle.
        threads: threads it may use; by default those it was measured with.
        machine: runs a language model elsewhere, for its texts alone; by default it runs in this process.

    Attributes:
        warning: one line where the bundle is used without trust in its signer, else None.
        machine: the virtual machine of a compiled model; `machine.reset()` makes its state zeros, which a
            language model does not need: it starts anew at position 0.
    """

    def __init__(self, opened: OpenedBundle, threads: Optional[int] = None, machine: Any = None) -> None:
        bundle, self.warning = opened
        manifest = bundle.manifest
        self.backend = manifest.backend
        self.path = bundle.directory
        self._content = state_digest(manifest)
        self._lock = threading.Lock()
        count = int(threads or manifest.threads)
        self._engine: Any = None
        self.machine: Optional[VirtualMachine] = None
        self._generation: Optional[Generation] = None
        if self.backend == "tvm":
            here = (signature_of(manifest.fields), machine)
            self.signature, self.machine = load_machine(opened, count) if machine is None else here
            decoder = manifest.fields.get("decoder")
            if decoder:
                self._generation = Generation(self.machine, decoder, self.path, self._lock)
        else:
            self.signature = signature_of(manifest.fields)
            self._engine = create(self.backend)
            self._engine.load(os.path.join(self.path, manifest.model), count)

    def run(self, inputs: Union[Mapping[str, Any], Sequence[Any]]) -> Dict[str, Any]:
        """One inference.

        Args:
            inputs: arrays by name or in order; anything with the buffer protocol or DLPack.

        Returns:
            Outputs by name: NumPy arrays where the process has imported NumPy, else tensors that
            speak DLPack.

        Raises:
            ValueError: an input is missing, unknown, of another shape or type, or of a length outside the
                bundle's range.
        """
        named = zip(self.signature.inputs, self._ordered(inputs))
        given = [_Given.of(info, value, self.machine is not None) for info, value in named]
        length = self.signature.length_of([(one.shape, one.dtype) for one in given])
        with self._lock:
            if self.machine is None:
                self._engine.bind([one.data() for one in given])
                self._engine.invoke()
                results = [_from_data(tensor) for tensor in self._engine.outputs()]
            else:
                if self._generation is not None:
                    self._generation.decoder.forget()
                self.machine.set_length(length)
                for tensor, one in zip(self.machine.inputs, given):
                    one.copy_to(tensor)
                results = [_to_array(one, self.machine.on_gpu) for one in tensors_of(self.machine.invoke())]
        return {info.name: result for info, result in zip(self.signature.outputs, results)}

    def generate(
        self,
        prompt: Union[str, Sequence[int]],
        max_tokens: int = 256,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        speculate: Optional[bool] = None,
        stop: Union[str, Sequence[str], None] = None,
    ) -> Iterator[Union[str, int]]:
        """Continues a text with a language model; each piece is computed when it is taken.

        The tokens that the prompt has in common with the last text are not computed again. The iterator may
        be left at any time, and the model used for something else meanwhile.

        Args:
            prompt: text, which needs the package `tokenizers` and a tokenizer in the bundle, or the numbers
                of tokens.
            max_tokens: most tokens to generate.
            temperature: at 0 always the most likely token; above, tokens are drawn, at 1 with the model's
                probabilities.
            top_k: draw from so many of the likeliest tokens; 0 draws from all.
            top_p: draw from the fewest likeliest tokens whose probabilities sum up to this.
            seed: of what is drawn: the same seed gives the same text.
            speculate: whether what followed the last tokens earlier in the text is drafted, and several
                tokens are verified at once: the text is the same. None does so where it is faster, by the
                times of this text and those before.
            stop: strings that end the text, of a prompt that is text: it is given up to the first of them.

        Returns:
            Pieces of text of whole characters, or numbers of tokens where the prompt is numbers. `stopped`
            says afterwards why the text ended, and `timing` what it took.

        Raises:
            ValueError: the prompt is empty, does not fit the model, or a value means nothing.
            AgentError: the bundle is not a language model's, or the prompt is text and there is no tokenizer.
        """
        if self._generation is None:
            raise no_language_model(self.path)
        sampler = Sampler(Sampling(temperature, top_k, top_p, seed))
        return self._generation.generate(prompt, max_tokens, sampler, speculate, checked_stops(stop))

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        max_tokens: int = 256,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        speculate: Optional[bool] = None,
        stop: Union[str, Sequence[str], None] = None,
        template: Optional[str] = None,
        variables: Optional[Mapping[str, Any]] = None,
    ) -> Iterator[str]:
        """The next turn of a conversation, by the model's chat template; in pieces, as `generate`.

        A conversation that goes on as the last one did is computed from there. It needs the packages
        `tokenizers` and `jinja2`. The template is rendered in a process with little memory and time.

        Args:
            messages: turns, oldest first, as {"role": "user", "content": "..."}; a "system" one may be first.
            max_tokens: see `generate`, as all up to `stop`.
            temperature: see there.
            top_k: see there.
            top_p: see there.
            seed: see there.
            speculate: see there.
            stop: see there.
            template: name of a chat template, of `chat_templates`; None for the usual one.
            variables: that the template may name, as {"enable_thinking": False}.

        Raises:
            ValueError: there are no messages, they do not fit the context, or a value means nothing.
            AgentError: there is no chat template, it fails, or a package is not installed.
        """
        if self._generation is None:
            raise no_language_model(self.path)
        sampler, stops = Sampler(Sampling(temperature, top_k, top_p, seed)), checked_stops(stop)
        given = (messages, template, variables, max_tokens)
        return self._generation.answer(*given, sampler, speculate, stops)

    def generate_many(
        self,
        prompts: Sequence[Union[str, Sequence[int]]],
        max_tokens: int = 256,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: Union[int, Sequence[int]] = 0,
        stop: Union[str, Sequence[str], None] = None,
    ) -> Texts:
        """Continues several texts with a language model, as many at once as the bundle has places for.

        One call of the model gives a token of every text and reads the weights once. Each text is the one
        that `generate` gives for its prompt; on a GPU, sums may be in another order. What prompts have in
        common at the beginning is computed once. Texts that have no place yet begin where one has ended.

        Args:
            prompts: texts, or numbers of tokens; see `generate`.
            max_tokens: most tokens of each text.
            temperature: see `generate`, as the next two.
            top_k: see there.
            top_p: see there.
            seed: of what is drawn in every text, or one seed for each.
            stop: strings that end each text; see `generate`.

        Returns:
            An iterator of pieces with the number of their prompt, `text`, and `piece`. Its `stopped` says why
            each text ended, and its `timing` what all took. It may be left at any time.

        Raises:
            ValueError: a prompt is empty, does not fit the model, there are none, or a value means nothing.
            AgentError: the bundle is not a language model's, or a prompt is text and there is no tokenizer.
        """
        if self._generation is None:
            raise no_language_model(self.path)
        if isinstance(prompts, str):
            raise ValueError("the prompts are one text: give a list of texts")
        seeds = [seed] * len(prompts) if isinstance(seed, int) else list(seed)
        if len(seeds) != len(prompts):
            raise ValueError("%d seeds for %d prompts: give one for each" % (len(seeds), len(prompts)))
        samplers = [Sampler(Sampling(temperature, top_k, top_p, one)) for one in seeds]
        return self._generation.generate_many(prompts, max_tokens, samplers, checked_stops(stop))

    def save_prompt(self, path: Union[str, "os.PathLike[str]"]) -> int:
        """Writes the state of the last text of `generate` to a file: no process need compute it again.

        The file is as large as the bundle's state (`memory` of its manifest), and belongs to this bundle.

        Args:
            path: of the file; one that is there is replaced.

        Returns:
            The number of tokens that it is of.

        Raises:
            AgentError: the bundle is not a language model's, or no text was generated.
            OSError: the file cannot be written.
        """
        with self._lock:
            return self._decoder().save(os.fspath(path), self._content)

    def load_prompt(self, path: Union[str, "os.PathLike[str]"]) -> int:
        """Fills the state out of a file of `save_prompt`: a prompt that begins with it continues there.

        Args:
            path: of the file. It is checked, and who can write it decides what the model writes.

        Returns:
            The number of tokens that it is of.

        Raises:
            AgentError: the bundle is not a language model's, there is no such file, or it is damaged or of
                another bundle.
            OSError: it cannot be read.
        """
        with self._lock:
            return self._decoder().restore(os.fspath(path), self._content)

    def _decoder(self) -> Decoder:
        if self._generation is None:
            raise no_language_model(self.path)
        return self._generation.decoder

    @property
    def chat_templates(self) -> Tuple[str, ...]:
        """Names of the bundle's chat templates; none where its model came without."""
        return self._generation.chat.names if self._generation is not None else ()

    @property
    def stopped(self) -> str:
        """Why the last generated text ended, one line; "" where it has not, or there is none."""
        return self._generation.stopped if self._generation is not None else ""

    @property
    def timing(self) -> Optional[Timing]:
        """The timing of the last generated text; None where there is none."""
        return self._generation.timing if self._generation is not None else None

    def _ordered(self, inputs: Union[Mapping[str, Any], Sequence[Any]]) -> List[Any]:
        names = [info.name for info in self.signature.inputs]
        if isinstance(inputs, Mapping):
            if set(inputs) != set(names):
                raise ValueError("inputs are %s, the model takes %s" % (sorted(inputs), sorted(names)))
            return [inputs[name] for name in names]
        if len(inputs) != len(names):
            raise ValueError("%d inputs given, the model takes %d: %s" % (len(inputs), len(names), names))
        return list(inputs)


def load(
    path: Union[str, "os.PathLike[str]"],
    threads: Optional[int] = None,
    trust: str = "signed",
    keys: Union[str, "os.PathLike[str]", None] = None,
) -> Model:
    """Loads a bundle from its directory, after every file of it has been checked.

    A check reads the files once a boot and after a change; what was checked is remembered beside the keys.

    Args:
        path: the bundle.
        threads: threads it may use; by default those it was measured with. For the tvm backend the
            first bundle of a process decides, as does TVM_NUM_THREADS where it is set.
        trust: "signed": only what a host signed that this device trusts; "unsigned": anybody's bundle, which
            runs as this user, with a warning.
        keys: file of the trusted keys; by default `trust.json` of this user's agent (or of EDGETLM_STORE).

    Raises:
        BundleError: the bundle is damaged, incomplete, of another schema version, revoked, or not trusted.
        AgentError: its engine is not installed.
    """
    opened = open_bundle(os.path.abspath(os.fspath(path)), trust, os.fspath(keys) if keys else None)
    if opened.warning:
        warnings.warn(opened.warning, stacklevel=2)
    return Model(opened, threads)


class _Given(NamedTuple):
    """An input as the caller gave it: by the buffer protocol, or else by DLPack."""

    shape: Tuple[int, ...]
    dtype: str
    view: Optional[memoryview]
    tensor: Any

    @staticmethod
    def of(info: TensorInfo, value: Any, with_tvm: bool) -> "_Given":
        try:
            view = memoryview(value)
        except TypeError:
            if not hasattr(value, "__dlpack__"):
                raise ValueError(
                    "input %s is a %s; give an array with the buffer protocol or DLPack"
                    % (info.name, type(value))
                ) from None
            if not with_tvm:
                import numpy

                return _Given.of(info, numpy.from_dlpack(value).data, with_tvm)
            tensor = ffi.load_runtime().from_dlpack(value, require_contiguous=True)
            return _Given(tuple(int(d) for d in tensor.shape), str(tensor.dtype), None, tensor)
        dtype = _FORMATS.get(view.format.lstrip("@=<") if view.format else "B", view.format)
        return _Given(tuple(view.shape or ()), str(dtype), view, None)

    def copy_to(self, tensor: Any) -> None:
        if self.view is not None:
            ffi.copy_from_buffer(tensor, self.view)
        else:
            ffi.copy(self.tensor, tensor)

    def data(self) -> TensorData:
        if self.view is not None:
            return TensorData(self.shape, self.dtype, self.view.tobytes())
        size = tensor_bytes(self.shape, self.dtype)
        return TensorData(self.shape, self.dtype, ffi.to_bytes(self.tensor, size))


def _from_data(tensor: TensorData) -> Any:
    import numpy

    return numpy.frombuffer(tensor.data, dtype=tensor.dtype).reshape(tensor.shape)


def _to_array(tensor: Any, on_gpu: bool) -> Any:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return tensor
    shape, dtype = tuple(tensor.shape), str(tensor.dtype)
    if dtype == "bool" or on_gpu:
        # NumPy before 1.25 does not take booleans by DLPack, and none takes what lies on a GPU. What
        # a GPU's model leaves on the CPU is the same tensor in every run.
        return numpy.frombuffer(ffi.to_bytes(tensor, tensor_bytes(shape, dtype)), dtype=dtype).reshape(shape)
    return numpy.from_dlpack(tensor)
