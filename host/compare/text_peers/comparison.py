"""Measures a bundle of a language model beside other engines, each with its best file of the same bits."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from device_agent.contract.text import printable
from host.compare.text_peers import rounds
from host.compare.text_peers.figures import OURS, tokens_of
from host.compare.text_peers.peers import PEERS, given_for, interpreter_of, write_file
from host.compare.text_peers.process import OUR_ENGINE, EngineProcess
from host.engines import unavailable
from host.errors import EngineError, one_line
from host.model.text_comparison import EngineTexts, TextComparison
from host.model.text_quality import divergence
from host.statistics import paired_ratio

_ROUNDS = 7
_SEED = 7
_COMPARED_TOKENS = 24


@dataclass(frozen=True)
class PeerFiles:
    """The files that peers read.

    Attributes:
        model: a folder of transformers, or a GGUF file, which llama.cpp reads itself.
        bits: of a weight in the bundle; 0 where no file of the same is written for peers.
        given: files of the user's, by name of the engine.
        pythons: interpreters of the user's, by name of the engine.
    """

    model: Path
    bits: int
    given: Mapping[str, Path]
    pythons: Mapping[str, Path]

    def of(self, name: str, folder: Path) -> tuple[Path, Path]:
        """The interpreter of an engine and its file, which is written where it is not there.

        Args:
            name: of the engine.
            folder: to write into.

        Raises:
            EngineError: the engine is not installed, or reads no file of this model.
        """
        peer = PEERS[name]
        python = interpreter_of(peer, self.pythons)
        if python is None:
            raise EngineError(
                f"{unavailable(name)}: install it, or give the interpreter of another environment with "
                f"--peer-python {name}=PATH"
            )
        file = given_for(peer, self.given)
        if file is not None:
            return python, file.absolute()
        if self.model.is_file() and peer.suffix == self.model.suffix:
            return python, self.model.absolute()
        if self.model.is_file() or not self.bits:
            raise EngineError(
                f"{name}: no file is written for it of a model that is quantised already: give one with "
                f"--peer-file {name}=PATH"
            )
        path = folder / f"{peer.environment}{peer.suffix}"
        if not path.exists():
            write_file(peer, python, self.model, path, self.bits)
        return python, path


def compare_texts(
    bundle: Path,
    names: Sequence[str],
    files: PeerFiles,
    *,
    vocabulary: int,
    context: int,
    threads: int,
    note: Callable[[str], None],
) -> TextComparison | None:
    """Measure steps and prompts of a bundle and of peers in turn; None where no peer could be measured.

    Args:
        bundle: directory.
        names: of peers, of `PEERS`.
        files: that they read.
        vocabulary: of the model.
        context: tokens that the engines keep.
        threads: to compute with.
        note: gets a line for each peer that is left out.

    Raises:
        EngineError: our engine failed. A peer that fails, however late, is left out.
    """
    plan = rounds.Plan(vocabulary, context, _ROUNDS)
    missing: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="edgetlm-peers-") as scratch, ExitStack() as stack:
        paths, engines = {OURS: str(bundle.absolute())}, {}
        for name in names:
            try:
                python, path = files.of(name, Path(scratch))
                peer = PEERS[name]
                process = EngineProcess(name, peer.module, threads, str(python), peer.arguments)
            except EngineError as error:
                missing[name] = one_line(error)
                continue
            engines[name], paths[name] = stack.enter_context(process), str(path)
        if engines:
            ours = stack.enter_context(EngineProcess(OURS, OUR_ENGINE, threads))
            engines = {OURS: ours, **engines}
            measured = rounds.measure(engines, paths, plan, threads)
            missing |= measured.failed
        present = [name for name in engines if name not in (OURS, *missing)]
        peers = []
        if present:
            reference = _logits(engines[OURS], plan, Path(scratch))
            found = _figures(engines[OURS], measured, plan, None)
        for name in present:
            try:
                far = _divergence(reference, engines[name], plan, Path(scratch))
                peers.append(_figures(engines[name], measured, plan, far))
            except EngineError as error:
                missing[name] = one_line(error)
    for reason in missing.values():
        note(f"a peer is left out: {reason}")
    if not peers:
        return None
    return TextComparison(found, tuple(peers), plan.tokens, plan.positions, plan.rounds, missing)


def _logits(engine: EngineProcess, plan: rounds.Plan, folder: Path) -> np.ndarray:
    path = folder / f"{engine.name}.npy"
    count = min(_COMPARED_TOKENS, plan.context)
    engine.ask("logits", tokens=tokens_of(_SEED, count, plan.vocabulary), path=str(path))
    try:
        found: np.ndarray = np.load(path)
    except (OSError, ValueError, EOFError) as error:
        raise EngineError(f"{engine.name}: logits: they cannot be read: {one_line(error)}") from error
    if found.dtype.kind != "f" or not np.isfinite(found).all():
        raise EngineError(f"{engine.name}: logits: some are no finite numbers")
    return found


def _divergence(reference: np.ndarray, engine: EngineProcess, plan: rounds.Plan, folder: Path) -> float:
    try:
        return divergence(reference, _logits(engine, plan, folder))
    except ValueError as error:
        raise EngineError(f"{engine.name}: logits: {one_line(error)}") from error


def _figures(
    engine: EngineProcess, measured: rounds.Measured, plan: rounds.Plan, far: float | None
) -> EngineTexts:
    """The figures of one engine; `far` is its divergence from ours, None for ours."""
    name = engine.name
    seconds = {kind: by_engine[name] for kind, by_engine in measured.seconds.items()}
    ratios = {kind: paired_ratio(times, measured.seconds[kind][OURS]) for kind, times in seconds.items()}
    return EngineTexts(
        name,
        printable(engine.ask("version").get("version", "unknown")),
        {kind: plan.tokens[kind] / float(np.median(times)) for kind, times in seconds.items()},
        {} if name == OURS else ratios,
        engine.peak_bytes,
        measured.first_token_s[name],
        far,
    )
