"""Texts of a language model's bundle, on this machine or on a board."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from device_agent.contract.text import printable
from device_agent.contract.trust import FILE
from host.closing import Closing, end_process
from host.errors import BundleError, EdgeError, EngineError, ModelFileError, UserError

if TYPE_CHECKING:
    from host.manifest import Manifest
    from host.transport import Session

LOCAL = "local"
_STOP_S = 10.0


@dataclass(frozen=True)
class TextTiming:
    """The time that a generated text took.

    Attributes:
        prompt_tokens: of the prompt.
        reused_tokens: of these, whose state was there from the text before.
        prefill_s: seconds until the first token was known.
        tokens: that were generated.
        decode_s: seconds of computing those behind the first.
        speculated_tokens: of the tokens, those that were drafted and turned out right: no step computed them.
        tokens_per_s: tokens per second behind the first; None where there are none.
        watts: mean power of the machine from the beginning of the prompt to the end of the text; None where
            it has no sensor, or the text was too short for it.
        joules_a_token: the energy of that time by the tokens that were generated; None as `watts`.
    """

    prompt_tokens: int
    reused_tokens: int
    prefill_s: float
    tokens: int
    decode_s: float
    speculated_tokens: int
    tokens_per_s: float | None
    watts: float | None = None
    joules_a_token: float | None = None


class LanguageModel(Closing):
    """A language model in a process of its own; a context manager.

    Of a model on a board, tokens and logits travel: texts become tokens here, where tokens are chosen too,
    and the times of a text have all of that.

    Args:
        path: bundle directory or zip, or the name of a model that is installed on this machine.
        device: name of the device that runs it.
        trust: "signed": the device has to trust the bundle's signer; "unsigned": any bundle is accepted.

    Attributes:
        warning: one line where the device does not trust the bundle's signer; else "".
        chat_templates: names of the bundle's chat templates; none where its model came without.
        stopped: why the last text ended; "" while it has not.
        timing: what the last text took; None while it has not ended.

    Raises:
        UserError: there is no such device, or the bundle is not a language model's.
        ModelFileError: there is no bundle.
        BundleError: it is damaged, revoked, or not trusted.
        EngineError: the device cannot run it.
        DeviceError: it went away.
    """

    def __init__(self, path: Path, device: str = LOCAL, trust: str = "signed") -> None:
        from host.transport.local import default_store, linked_agent

        self.stopped = ""
        self.timing: TextTiming | None = None
        with ExitStack() as stack:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="edgetlm-")))
            self._session: Session | None = None
            if device == LOCAL:
                folder, how = _bundle_folder(path, trust, scratch), ["--trust", trust]
            else:
                # The device judges who signed it; here, it is only read.
                folder, self._session = _on_device(path, device, trust, scratch, stack)
                how = ["--trust", "unsigned", "--relayed"]
            code = scratch / "agent"
            code.mkdir()
            linked_agent(code)
            command = [sys.executable, "-m", "device_agent", "generate", str(folder.resolve())]
            command += [*how, "--keys", str(default_store().absolute() / FILE)]
            self._log = scratch / "log"
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    command,
                    cwd=code,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    encoding="utf-8",
                    # Ctrl-C is ours to handle.
                    start_new_session=True,
                )
            stack.callback(self._stop)
            try:
                loaded = self._read()
                self.warning = str(loaded["warning"]) if self._session is None else self._session.warning
                self.chat_templates = tuple(map(str, loaded["templates"]))
            except EdgeError as error:
                # A zip was unpacked somewhere that means nothing to its owner.
                raise type(error)(str(error).replace(str(folder.resolve()), str(path))) from error
            self._stack = stack.pop_all()

    def close(self) -> None:
        """End the process."""
        self._stack.close()

    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        max_tokens: int = 256,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        stop: str | Sequence[str] = (),
    ) -> Iterator[str | int]:
        """Continue a text; a piece is computed when it is taken, and a text may be left at any time.

        What the arguments mean, and what is returned, is said once, by `device_agent.runtime.Model.generate`:
        this asks it in the model's process. Drafts are verified where that is faster.

        Raises:
            UserError: the prompt does not fit the model, or a value means nothing.
            EngineError: the model's process ended.
        """
        request = {
            "prompt": prompt if isinstance(prompt, str) else [int(token) for token in prompt],
            "max_tokens": max_tokens,
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "seed": seed,
            "stop": stop if isinstance(stop, str) else list(stop),
        }
        return self._begun(request)

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        max_tokens: int = 256,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        stop: str | Sequence[str] = (),
        template: str | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> Iterator[str | int]:
        """Begin the next turn of a conversation, by the model's chat template; pieces of text, as `generate`.

        What the arguments mean is said once, by `device_agent.runtime.Model.chat`.

        Raises:
            UserError: there is no chat template, it fails, or the messages do not fit the model.
            EngineError: a package is not installed, or the model's process ended.
        """
        request = {
            "messages": [dict(message) for message in messages],
            "template": template,
            "variables": dict(variables or {}),
            "max_tokens": max_tokens,
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "seed": seed,
            "stop": stop if isinstance(stop, str) else list(stop),
        }
        return self._begun(request)

    def save_prompt(self, path: str | Path) -> int:
        """Write the state of the last text to a file, which `load_prompt` of the same bundle reads.

        Args:
            path: of the file; one that is there is replaced.

        Returns:
            The number of tokens that it is of.

        Raises:
            UserError: no text was generated.
            EngineError: the file cannot be written, or the model's process ended.
        """
        return int(self._ask({"save": str(Path(path).absolute())})["tokens"])

    def load_prompt(self, path: str | Path) -> int:
        """Fill the state out of a file: a prompt that begins with its tokens continues there.

        Args:
            path: of the file. It is checked, and who can write it decides what the model writes.

        Returns:
            The number of tokens that it is of.

        Raises:
            UserError: there is no such file, or it is damaged or of another bundle.
            EngineError: it cannot be read, or the model's process ended.
        """
        return int(self._ask({"load": str(Path(path).absolute())})["tokens"])

    def _begun(self, request: Mapping[str, Any]) -> Iterator[str | int]:
        self.stopped, self.timing = "", None
        self._ask(request)
        return self._pieces()

    def _pieces(self) -> Iterator[str | int]:
        while True:
            reply = self._ask({})
            if "piece" not in reply:
                self.stopped = str(reply["stopped"])
                power = reply["power"] or {}
                self.timing = TextTiming(**reply["timing"], tokens_per_s=reply["tokens_per_s"], **power)
                return
            yield reply["piece"]

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        try:
            line = json.dumps(request)
        except (TypeError, ValueError, RecursionError) as error:
            raise UserError(f"what is given is no JSON: {printable(error, 200)}") from error
        self._send(line)
        reply = self._read()
        while "run" in reply and self._session is not None:
            self._send(json.dumps({"output": self._run(self._session, reply)}))
            reply = self._read()
        return reply

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            raise self._ended() from None

    def _run(self, session: Session, asked: Mapping[str, Any]) -> str:
        """The output of a call of the model on the device, in base 64."""
        import numpy as np

        inputs = [np.array(one, np.int32) for one in asked["inputs"]]
        try:
            outputs = session.run(inputs, str(asked["run"]))
            if len(outputs) != 1:
                raise EngineError(f"the device gave {len(outputs)} outputs, not one: load the model again")
        except BaseException:
            # The process waits for an output that will not come, also where somebody interrupts this one.
            self._stop()
            raise
        return base64.b64encode(outputs[0].tobytes()).decode()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.endswith("\n"):
            # Also where it ended in the middle of an answer.
            raise self._ended()
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            kinds: dict[str, type[EdgeError]] = {"bundle": BundleError, "bad_request": UserError}
            raise kinds.get(str(reply["kind"]), EngineError)(str(reply["error"]))
        return reply

    def _ended(self) -> EngineError:
        self._stop()
        last = self._log.read_text(errors="replace").strip().splitlines()[-1:] if self._log.exists() else []
        reason = printable(last[0] if last else f"code {self._process.returncode}")
        return EngineError(f"the process of the model ended ({reason}): load it again")

    def _stop(self) -> None:
        process = self._process
        end_process(process, _STOP_S)
        for stream in (process.stdin, process.stdout):
            if stream is not None and not stream.closed:
                # What could not be sent any more is lost.
                try:
                    stream.close()
                except BrokenPipeError:
                    continue


def _bundle_folder(path: Path, trust: str, scratch: Path) -> Path:
    """Where a bundle lies on this machine, whose manifest is that of a language model."""
    from host import bundle
    from host.transport import connect
    from sdk.model import installed_bundle

    # Also has this machine trust this host's own bundles, as any connection does.
    with connect(LOCAL) as device:
        installed = None if path.exists() else installed_bundle(path, device)
        if installed is None:
            folder = bundle.unpacked(path, scratch)
            # What was unpacked has been checked.
            manifest = bundle.read_manifest(folder)
        else:
            folder = Path(str(installed["path"]))
            manifest = bundle.manifest_from(installed["manifest"], f"{path} on {device.name}")
        bundle.require_processor(manifest, str(path), device.describe(), device.name)
    _require_decoder(manifest, path)
    return folder


def _on_device(path: Path, name: str, trust: str, scratch: Path, stack: ExitStack) -> tuple[Path, Session]:
    """A bundle's folder on this machine, and a session on a device that has loaded it."""
    from host import bundle
    from host.transport import connect

    if not path.exists():
        raise ModelFileError(
            f"no such bundle: {printable(path)}: give its folder or .zip, as its tokenizer is used here"
        )
    device = stack.enter_context(connect(name))
    folder = bundle.unpacked(path, scratch)
    manifest = bundle.read_manifest(folder)
    _require_decoder(manifest, path)
    bundle.require_processor(manifest, str(path), device.describe(), device.name)
    session = stack.enter_context(device.open_session("tvm", threads=manifest.threads))
    session.load(folder, trust)
    return folder, session


def _require_decoder(manifest: Manifest, path: Path) -> None:
    if manifest.decoder is None:
        raise UserError(f"{path} is not the bundle of a language model: use sdk run")
