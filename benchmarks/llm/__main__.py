"""Language models beside other engines: `python -m benchmarks.llm --json FILE`.

Every model has seeded random weights: speed, memory and what quantising loses do not need a text that makes
sense. It is deployed as a user does it, and written as a file of each peer. The engines are processes of
their own, which load the model once and work in turn.

decode         tokens a second behind 128 tokens (`decode`) and, where the context has 2048 places, behind
               1984 (`decode_long`)
several        tokens a second of all texts, where so many are continued together (`--sequences`)
prefill        tokens a second of a prompt of 512 tokens, until the next one is known
bandwidth      bytes of weights that a token needs times tokens a second, over what the fastest of several
               loops reads that only read a buffer of that size with the same threads; with the keys and
               values that it reads too, `bandwidth_share_with_cache`; of peers with weights of as many bytes,
               `peer_bandwidth_share`. `decode_ceiling` is the speed to the best peer at a share of 1
arithmetic     multiply-adds with quantised weights a second of the prefill, over what a loop over registers
               reaches with the same threads, where the processor adds up products of bytes; those of
               attention with keys and values are not counted
peak memory    proportional set size of the engine's process
first token    from the beginning of loading until the token behind a prompt of 512
kl_divergence  of the next token's distribution to that of transformers with the weights as they were, over 64
               random tokens
peer_agrees    whether the peer chooses the tokens that transformers does with the peer's weights

With `--files-dir`, bundles and files of peers are kept, and taken where they are there; `--prepare` makes
them and measures nothing, so that a later run on a quiet machine only measures. `deploy_commit` says which
sources made the bundle.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.llm.figures import agrees, arithmetic_share, memory_figures
from benchmarks.llm.files import Files
from benchmarks.llm.models import FLOAT_BITS, SHAPES, folder_of
from benchmarks.llm.peers import Installed, install
from benchmarks.llm.several import several
from benchmarks.result_file import add_json_option, heading, models_so_far, write_result
from host.compare.text_peers import rounds
from host.compare.text_peers.figures import OURS, speeds, tokens_of
from host.compare.text_peers.peers import PEERS, TextPeer, read_file, write_file
from host.compare.text_peers.process import OUR_ENGINE, EngineProcess
from host.errors import EngineError
from host.importers.decoders.quantise import BITS
from host.importers.decoders.reference import reference_logits
from host.model.text_quality import divergence

SCHEMA = "edgetlm.llm/1"
_TEXT_TOKENS = 64
_CHECKED_PROMPT, _CHECKED_TOKENS = 8, 16
_SEED = 7
_READ_S, _MULTIPLY_S = 1.0, 0.5
# "none": weights, keys and values in single precision.
_BITS = {"none": FLOAT_BITS} | {name: bits for name, bits in BITS.items() if name}
_SEQUENCES = {"2": 2, "3": 3, "4": 4}


class ModelBenchmark:
    """One model with all engines.

    Args:
        name: of `SHAPES`.
        options: of the command line.
        installed: the peers.
        folder: for what this run alone needs.
    """

    def __init__(self, name: str, options: argparse.Namespace, installed: Installed, folder: Path) -> None:
        self._shape = SHAPES[name]
        self._options = options
        self._installed = installed
        self._folder = folder
        self._files = Files(options.files_dir or folder, name, options.quantize)
        self._model = folder_of(name, options.models_dir)
        self._bits = _BITS[options.quantize]
        self._notes = dict(installed.missing)

    def run(self) -> dict[str, Any]:
        """The entry of the results.

        Raises:
            EngineError: our engine failed, or transformers.
        """
        options = self._options
        bundle, entry = self._bundle()
        paths = {OURS: str(bundle)}
        plan = rounds.Plan(self._shape.vocabulary, options.context, options.rounds)
        step_bytes = self._shape.step_bytes(self._bits)
        with ExitStack() as stack:
            engines = {OURS: EngineProcess(OURS, OUR_ENGINE, options.threads)}
            stack.enter_context(engines[OURS])
            for name, python in self._installed.pythons.items():
                try:
                    paths[name] = str(self._file(PEERS[name]))
                except EngineError as error:
                    self._notes[name] = str(error)
                    continue
                peer = PEERS[name]
                engines[name] = EngineProcess(name, peer.module, options.threads, str(python), peer.arguments)
                stack.enter_context(engines[name])
            reader = stack.enter_context(EngineProcess("reader", "benchmarks.llm.reading", options.threads))
            quantised = self._bits != FLOAT_BITS
            loaded = reader.ask("load", size=step_bytes, threads=options.threads, quantised=quantised)
            read: dict[str, list[float]] = {}
            multiplied: list[float] = []

            def limits(kind: str) -> None:
                if kind == "prefill":
                    if loaded["multiplies"]:
                        multiplied.append(reader.ask("multiply", seconds=_MULTIPLY_S)["multiply_adds_per_s"])
                else:
                    for loop, rate in reader.ask("read", seconds=_READ_S)["bytes_per_s"].items():
                        read.setdefault(loop, []).append(rate)

            measured = rounds.measure(engines, paths, plan, options.threads, limits)
            self._notes |= measured.failed
            engines = {name: engine for name, engine in engines.items() if name not in measured.failed}
            entry |= speeds(measured.seconds, plan.tokens)
            # Of the middle of a round.
            kept = self._shape.kept_bytes(rounds.SHORT + plan.decoded // 2, self._bits)
            entry |= memory_figures(measured, plan.decoded, step_bytes, kept, read)
            if multiplied:
                peak, work = statistics.median(multiplied), self._shape.prompt_multiply_adds(plan.prompt)
                entry["prefill_peak_share"] = arithmetic_share(measured, work, peak)
                entry["multiply_adds_s"] = peak
            entry["versions"] = {name: engine.ask("version")["version"] for name, engine in engines.items()}
            entry["peak_memory_mb"] = rounds.peaks_mb(engines)
            entry["first_token_s"] = measured.first_token_s
            if options.sequences:
                bundles = {count: self._bundle(count)[0] for count in self._counts()}
                size, shape = self._shape.vocabulary, {"threads": options.threads, "context": options.context}
                entry |= several(bundles, engines[OURS], size, options.rounds, **shape)
            entry["kl_divergence"] = self._divergences(engines)
            entry["peer_agrees"] = self._agreements(engines)
        return entry | {"notes": self._notes, "seconds": measured.seconds}

    def prepare(self) -> None:
        """Make the bundles and the files of peers, and measure nothing.

        Raises:
            EngineError: one could not be made.
        """
        self._bundle()
        for count in self._counts():
            self._bundle(count)
        for name in self._installed.pythons:
            self._file(PEERS[name])

    def _counts(self) -> list[int]:
        return [int(one) for one in self._options.sequences.split(",") if one]

    def _bundle(self, sequences: int = 1) -> tuple[Path, dict[str, Any]]:
        options = self._options
        deployment = {"threads": options.threads, "context": options.context, "sequences": sequences}
        return self._files.bundle(self._model, **deployment)

    def _file(self, peer: TextPeer) -> Path:
        """The model as a peer reads it."""

        def write(path: Path) -> None:
            write_file(peer, self._installed.pythons[peer.name], self._model, path, self._bits)

        return self._files.of_peer(f"{peer.environment}{peer.suffix}", write)

    def _original(self, peer: TextPeer) -> Path:
        """A transformers folder with the weights of a peer's file; in single precision, the model's own."""
        if self._bits == FLOAT_BITS:
            return self._model
        folder = self._folder / peer.environment
        if not folder.is_dir():
            read_file(peer, self._installed.pythons[peer.name], self._file(peer), self._model, folder)
        return folder

    def _divergences(self, engines: Mapping[str, EngineProcess]) -> dict[str, float]:
        text = tokens_of(_SEED, _TEXT_TOKENS, self._shape.vocabulary)
        reference = reference_logits(self._model, np.array(text, np.int32), ())
        found = {}
        for name, engine in engines.items():
            path = self._folder / f"{name}.npy"
            engine.ask("logits", tokens=text, path=str(path))
            found[name] = divergence(reference, np.load(path))
        return found

    def _agreements(self, engines: Mapping[str, EngineProcess]) -> dict[str, bool]:
        prompt = tokens_of(_SEED + 1, _CHECKED_PROMPT, self._shape.vocabulary)
        found = {}
        for name, engine in engines.items():
            if name == OURS:
                # The deployment has verified it.
                continue
            made = engine.ask("decode", tokens=prompt, count=_CHECKED_TOKENS - 1)["tokens"]
            text = np.array([*prompt, *made[:-1]], np.int32)
            logits = reference_logits(self._original(PEERS[name]), text, ())
            found[name] = agrees(logits[len(prompt) - 1 :], made)
        return found


def show(name: str, entry: Mapping[str, Any]) -> None:
    """A few lines per model."""
    if "error" in entry:
        print(f"{name}: failed: {entry['error']}", flush=True)
        return
    verified = "verified" if entry["verified"] else "NOT verified"
    print(
        f"{name}: {verified}, {entry['bandwidth_share']:.0%} of the bandwidth that reading alone has", end=""
    )
    peers = entry.get("peer_bandwidth_share", {}).items()
    print("".join(f", {peer} {share:.0%}" for peer, share in peers), entry.get("read_loop", ""))
    if "decode_ceiling" in entry:
        print(f"  at all of it, a step would have {entry['decode_ceiling']:.2f} of the best peer's speed")
    if "prefill_peak_share" in entry:
        print(f"  prefill: {entry['prefill_peak_share']:.0%} of the multiply-adds that registers alone have")
    for kind in ("decode_tokens_s", "decode_long_tokens_s", "prefill_tokens_s", "peak_memory_mb"):
        if kind in entry:
            figures = ", ".join(f"{engine} {value:.1f}" for engine, value in entry[kind].items())
            print(f"  {kind:<22} {figures}")
    for count, value in entry.get("decode_tokens_s_several", {}).items():
        gain, low, high = entry["speedup_several"].get(count, (1.0, None, None))
        bound = "" if low is None else f", {gain:.2f} ({low:.2f} to {high:.2f}) times one text"
        print(f"  {count} texts together: {value:.1f} tokens/s{bound}")
    for kind, value in entry["speedup"].items():
        bound = "" if None in entry["bounds"][kind] else " ({:.2f} to {:.2f})".format(*entry["bounds"][kind])
        print(f"  speed to {entry['best_peer'][kind]}, {kind}: {value:.2f}{bound}")
    print(f"  divergence {', '.join(f'{one} {value:.2e}' for one, value in entry['kl_divergence'].items())}")
    for engine, agreed in entry["peer_agrees"].items():
        print(f"  {engine} {'agrees' if agreed else 'does NOT agree'} with transformers")
    for engine, note in entry["notes"].items():
        print(f"  without {engine}: {note}")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; 1 where a model was not verified."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.prepare and options.files_dir is None:
        parser.error("--prepare needs --files-dir")
    names = options.configs.split(",")
    peers = [name for name in options.peers.split(",") if name]
    results = heading("benchmarks.llm", SCHEMA, arguments)
    models = models_so_far(options.json, results) if options.resume else {}
    installed = install(peers)
    for name in names:
        if options.prepare:
            ModelBenchmark(name, options, installed, options.files_dir).prepare()
            print(f"{name}: prepared in {options.files_dir}", flush=True)
            continue
        if name not in models:
            with tempfile.TemporaryDirectory(prefix="edgetlm-llm-") as folder:
                try:
                    models[name] = ModelBenchmark(name, options, installed, Path(folder)).run()
                except EngineError as error:
                    models[name] = {"verified": False, "error": str(error)}
        show(name, models[name])
        write_result(options.json, results | {"models": models})
    return 0 if all(entry["verified"] for entry in models.values()) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.llm",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--configs", type=_listed(SHAPES), default=",".join(SHAPES), help="comma-separated")
    parser.add_argument("--quantize", choices=list(_BITS), default="int4")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--context", type=int, default=2048, help="tokens that the models keep")
    parser.add_argument("--peers", type=_listed(PEERS), default=",".join(PEERS), help="comma-separated")
    parser.add_argument("--sequences", type=_listed(_SEQUENCES), default="", help="several texts, as 2,4")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--models-dir", type=Path, default=Path("edgetlm-out/language-models"))
    parser.add_argument("--files-dir", type=Path, help="keep bundles and files of peers here, and reuse them")
    parser.add_argument("--prepare", action="store_true", help="fill --files-dir, and measure nothing")
    parser.add_argument("--resume", action="store_true", help="keep the models that the result file has")
    add_json_option(parser)
    return parser


def _listed(known: Mapping[str, Any]) -> Any:
    """A type of argument: names, comma-separated, all of them known."""

    def check(text: str) -> str:
        unknown = [name for name in text.split(",") if name and name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"no {', '.join(unknown)}; there are {', '.join(known)}")
        return text

    return check


if __name__ == "__main__":
    sys.exit(main())
