"""Model files of all formats, imported in confined children as the product imports them."""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
from pathlib import Path
from random import Random

import onnx

from host.errors import EdgeError
from host.importers.worker.ahead import files_of, limits_for
from host.importers.worker.parent import explained
from host.sandbox import Outcome as Ended
from host.sandbox import Unforeseen, WorkerLost, forked, scratch_folder
from tests.fuzz.case import Case, Outcome, Tree, canaries, complaint
from tests.fuzz.corpus import onnx_models, pt2_models, tflite_models
from tests.fuzz.mutate import TEXTS, mangled, number
from tests.fuzz.targets import changes

# One in so many is imported as the product does it: with the original runtime in a program of its own.
_WHOLE = 20
_FORMATS = ("onnx", "onnx", "pt2", "tflite")


class Models:
    """The target; the first file is the model."""

    name = "models"
    apart = True

    def open(self, place: Path) -> None:
        """Folders: for the model, for what may be written to, and for what may not."""
        for name in ("outside", "models", "tmp", "cache"):
            (place / name).mkdir()
        os.environ.update(
            HOME=str(place / "outside"), XDG_CACHE_HOME=str(place / "cache"), TMPDIR=str(place / "tmp")
        )
        tempfile.tempdir = None
        os.chdir(place / "outside")
        self._place = place
        _warm_up(place / "tmp")

    def close(self) -> None:
        """Nothing is left running."""

    def corpus(self) -> list[Case]:
        """Everything that was a fault once."""
        return [*onnx_models.cases(), *pt2_models.cases(), *tflite_models.cases()]

    def case(self, seed: int) -> Case:
        """A changed model of some format."""
        rng = Random(f"models/{seed}")
        kind = rng.choice(_FORMATS)
        case = {"onnx": _onnx, "pt2": _pt2, "tflite": _tflite}[kind](rng)
        return dataclasses.replace(case, name=f"{kind}-{seed}")

    def run(self, case: Case) -> Outcome:
        """Import it: a model, or one clear line; nothing is run, nothing is written elsewhere."""
        folder = self._place / "models"
        shutil.rmtree(folder)
        folder.mkdir()
        path = case.write(folder)
        tree = Tree(folder, self._place / "outside")
        whole = case.name.rpartition("-")[2].isdigit() and int(case.name.rpartition("-")[2]) % _WHOLE == 0
        ended, line, left = self._imported(path, whole)
        wrong = left or tree.violation() or canaries(self._place)
        if not wrong and any((self._place / "tmp").iterdir()):
            wrong = "temporary files are left behind"
            shutil.rmtree(self._place / "tmp")
            (self._place / "tmp").mkdir()
        if ended.kind != "ok" and not wrong:
            wrong = complaint(line)
        return Outcome(ended.kind, line, wrong, ended.memory_bytes)

    def _imported(self, path: Path, whole: bool) -> tuple[Ended, str, str]:
        """How it ended, the line for people, and what a payload has left."""
        from host.importers.worker.transfer import unpack

        function = "host.importers.worker.child:read" if whole else "tests.fuzz.targets.model_worker:read"
        request = {
            "path": str(path.absolute()),
            "shapes": {},
            "seed": 0,
            "golden_cases": 1,
            "samples": None,
            "half": False,
        }
        with scratch_folder() as scratch:
            try:
                files = files_of(path)
            except EdgeError as error:  # of no format that is known
                return Ended("error", str(error), None, 0, 0.0), str(error), ""
            ended = forked(function, request, files, scratch, limits_for(files))
            line = ended.message
            if ended.kind == "unforeseen":
                line = explained(path, Unforeseen(ended.message))
            elif ended.kind in ("memory", "time", "crash"):
                line = explained(path, WorkerLost(ended.kind, ended.message))
            elif ended.kind == "ok":
                try:
                    unpack(ended.value, scratch, path)
                except EdgeError as error:
                    ended, line = dataclasses.replace(ended, kind="error"), str(error)
            return ended, line, canaries(scratch)


def _warm_up(scratch: Path) -> None:
    """Import a valid model of each format here: each child has what the libraries load late, then."""
    from tests.fuzz.targets.model_worker import load_forked

    seeds = {
        onnx_models.MODEL: onnx_models.seeds()[0].SerializeToString(),
        pt2_models.MODEL: pt2_models.zipped(pt2_models.seeds()[1]),
        tflite_models.MODEL: tflite_models.seeds()[0],
    }
    before = Path.cwd()
    os.chdir(scratch)
    Path("tmp").mkdir()
    for name, data in seeds.items():
        Path(name).write_bytes(data)
        load_forked(Path(name))
    os.chdir(before)
    shutil.rmtree(scratch)
    scratch.mkdir()


def _onnx(rng: Random) -> Case:
    if rng.random() < 0.1:
        return _external(rng)
    model = onnx.ModelProto()
    model.CopyFrom(rng.choice(onnx_models.seeds()))
    kind = rng.random()
    if kind < 0.85:
        changes.message(rng, model)
    data = model.SerializeToString()
    return Case("onnx", {onnx_models.MODEL: data if kind < 0.75 else mangled(rng, data)})


def _external(rng: Random) -> Case:
    case = onnx_models.external()
    model = onnx.ModelProto.FromString(case.main)
    entries = model.graph.initializer[0].external_data
    for _ in range(rng.choice((1, 2))):
        entry = rng.choice(entries)
        entry.value = rng.choice((str(number(rng)), *TEXTS)).encode("utf-8", "replace").decode()
        if entry.key == "location" and rng.random() < 0.5:
            entry.value = rng.choice(
                ("weights.bin", "../outside/x", "/etc/passwd", "/dev/zero", "/proc/self/mem", ".")
            )
    if rng.random() < 0.3:
        changes.message(rng, model.graph.initializer[0])
    holes = {"weights.bin": rng.choice((0, 1, 80, 1 << 20, 40 << 30))} if rng.random() < 0.3 else {}
    return Case(
        "onnx", {onnx_models.MODEL: model.SerializeToString(), "weights.bin": bytes(range(80))}, holes
    )


def _pt2(rng: Random) -> Case:
    return Case("pt2", {pt2_models.MODEL: changes.archive(rng)})


def _tflite(rng: Random) -> Case:
    data = rng.choice(tflite_models.seeds())
    changed = changes.flat(rng, data) if rng.random() < 0.7 else mangled(rng, data)
    return Case("tflite", {tflite_models.MODEL: changed})
