"""Texts of a language model's bundle, on this machine."""

from __future__ import annotations

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
from host.errors import BundleError, EdgeError, EngineError, UserError

if TYPE_CHECKING:
    from host.manifest import Manifest

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
    """A language model in a process of its own on this machine; a context manager.

    Args:
        path: bundle directory or zip, or the name of a model that is installed on this machine.
        device: name of the device, which has to be this machine.
        trust: "signed": this machine has to trust the bundle's signer; "unsigned": any bundle is accepted.

    Attributes:
        warning: one line where this machine does not trust the bundle's signer; else "".
        chat_templates: names of the bundle's chat templates; none where its model came without.
        stopped: why the last text ended; "" while it has not.
        timing: what the last text took; None while it has not ended.

    Raises:
        UserError: the device is another machine, or the bundle is not a language model's.
        ModelFileError: there is no bundle.
        BundleError: it is damaged, revoked, or not trusted.
        EngineError: this machine cannot run it.
    """

    def __init__(self, path: Path, device: str = LOCAL, trust: str = "signed") -> None:
        from host.transport.local import default_store, linked_agent

        if device != LOCAL:
            raise UserError(
                f"texts are generated on this machine only, not on {printable(device, 100)}: leave out"
                " --device, or use device_agent.runtime in an application on the device"
            )
        self.stopped = ""
        self.timing: TextTiming | None = None
        with ExitStack() as stack:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="edgetlm-")))
            folder = _bundle_folder(path, trust, scratch)
            code = scratch / "agent"
            code.mkdir()
            linked_agent(code)
            command = [sys.executable, "-m", "device_agent", "generate", str(folder.resolve())]
            command += ["--trust", trust, "--keys", str(default_store().absolute() / FILE)]
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
                self.warning = str(loaded["warning"])
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
        assert self._process.stdin is not None
        try:
            line = json.dumps(request)
        except (TypeError, ValueError, RecursionError) as error:
            raise UserError(f"what is given is no JSON: {printable(error, 200)}") from error
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            raise self._ended() from None
        return self._read()

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


def _require_decoder(manifest: Manifest, path: Path) -> None:
    if manifest.decoder is None:
        raise UserError(f"{path} is not the bundle of a language model: use sdk run")
