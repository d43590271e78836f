"""Measures a bundle of a language model beside other engines, each with its best file of the same bits."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from host.compare.text_peers import rounds
from host.compare.text_peers.figures import OURS, tokens_of
from host.compare.text_peers.peers import PEERS, interpreter_of, write_file
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
        if name in self.given:
            return python, self.given[name].absolute()
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
        EngineError: our engine failed, or a peer that has worked before.
    """
    plan = rounds.Plan(vocabulary, context, _ROUNDS)
    missing: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="edgetlm-peers-") as scratch, ExitStack() as stack:
        paths, engines = {OURS: str(bundle.absolute())}, {}
        for name in names:
            try:
                python, path = files.of(name, Path(scratch))
            except EngineError as error:
                missing[name] = one_line(error)
                continue
            peer = PEERS[name]
            process = EngineProcess(name, peer.module, threads, str(python), peer.arguments)
            engines[name], paths[name] = stack.enter_context(process), str(path)
        if engines:
            ours = stack.enter_context(EngineProcess(OURS, OUR_ENGINE, threads))
            engines = {OURS: ours, **engines}
            measured = rounds.measure(engines, paths, plan, threads)
            missing |= measured.failed
        for reason in missing.values():
            note(f"a peer is left out: {reason}")
        present = [name for name in engines if name not in missing]
        if len(present) < 2:  # ours alone
            return None
        reference = _logits(engines[OURS], plan, Path(scratch))
        found = {}
        for name in present:
            far = None if name == OURS else divergence(reference, _logits(engines[name], plan, Path(scratch)))
            found[name] = _figures(engines[name], measured, plan, far)
    peers = tuple(one for name, one in found.items() if name != OURS)
    return TextComparison(found[OURS], peers, plan.tokens, plan.positions, plan.rounds, missing)


def _logits(engine: EngineProcess, plan: rounds.Plan, folder: Path) -> np.ndarray:
    path = folder / "logits.npy"
    count = min(_COMPARED_TOKENS, plan.context)
    engine.ask("logits", tokens=tokens_of(_SEED, count, plan.vocabulary), path=str(path))
    found: np.ndarray = np.load(path)
    return found


def _figures(
    engine: EngineProcess, measured: rounds.Measured, plan: rounds.Plan, far: float | None
) -> EngineTexts:
    """The figures of one engine; `far` is its divergence from ours, None for ours."""
    name = engine.name
    seconds = {kind: by_engine[name] for kind, by_engine in measured.seconds.items()}
    ratios = {kind: paired_ratio(times, measured.seconds[kind][OURS]) for kind, times in seconds.items()}
    return EngineTexts(
        name,
        engine.ask("version")["version"],
        {kind: plan.tokens[kind] / float(np.median(times)) for kind, times in seconds.items()},
        {} if name == OURS else ratios,
        engine.peak_bytes,
        measured.first_token_s[name],
        far,
    )
