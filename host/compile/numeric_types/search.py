"""The search for the fastest types of a model's layers whose outputs are within a tolerance.

Candidates are lowered for their estimates. Those whose error is asked for are compiled, run on the device
with the golden cases, and removed. Programs of kernels that two candidates share are made and compiled once.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from host.compile import static_model
from host.compile.bundle_builder import BundleBuilder
from host.compile.model_compiler import PlannedModel
from host.compile.numeric_types.choice import Kept, TypeChoice, choose_kept
from host.compile.static_model import Plan
from host.errors import BuildError, LoweringError, ScheduleError
from host.model import ImportedModel, LoweredModel, Site
from host.model.numeric_types import NumericTypes, TypedLayer
from host.model.quantisation import FrontPoint
from host.model.site import SINGLE, TYPE
from host.plans.estimate import PlanEstimator
from host.plans.plan import OWN, ModelPlan
from host.progress import Silence, StageClock
from host.quantisation.search import grouped, steps

# Groups of layers that are judged together: each is lowered twice and compiled once at most. So at most 25
# models are compiled (`choose_kept`).
MOST_GROUPS = 16
_FOLDER = "types"


@dataclass(eq=False)
class TypeSearch:
    """The search for one model on one device.

    Attributes:
        builder: of the model's bundles.
        model: with its module.
        half: "bf16" or "fp16".
        tolerance: the largest error of an output.
        error: of the outputs of a bundle on the device, over golden cases; infinite where it does not run.
    """

    builder: BundleBuilder
    model: ImportedModel
    half: str
    tolerance: float
    error: Callable[[Path], float]
    _sites: tuple[Site, ...] = ()
    _groups: list[tuple[int, ...]] = field(default_factory=list)
    _seconds: dict[Kept, float] = field(default_factory=dict)
    _errors: dict[Kept, float] = field(default_factory=dict)
    _programs: Plan = field(default_factory=lambda: Plan({}, {}, {}))

    def __post_init__(self) -> None:
        compiler = self.builder.compiler
        options = replace(compiler.options, dtype=self.half, trials=0, budget_s=0.0, method="auto")
        self._compiler = replace(compiler, options=options, clock=StageClock(Silence()))
        self._estimator = PlanEstimator(compiler.profile, compiler.options.seed)
        self._done = 0

    def run(self) -> tuple[NumericTypes, ModelPlan | None]:
        """The types, and the plan of a mixed model; None where all layers have one type.

        Raises:
            ImportFailed: the compiler cannot express the model.
            LoweringError: it has no lowering on this target.
            DeviceError: the device went away.
        """
        with self.builder.compiler.clock.stage("types"):
            whole = self._lowered(OWN)
            self._sites = tuple(site for site in whole.sites if site.kind == TYPE)
            if not self._sites:
                why = "fp32: no layer multiplies constant weights"
                return NumericTypes("fp32", self.half, self.tolerance, why), None
            self._groups = grouped(len(self._sites), MOST_GROUPS)
            self._seconds[frozenset()] = self._estimator.estimate(whole).total_s
            return self._searched()

    def _searched(self) -> tuple[NumericTypes, ModelPlan | None]:
        single_s = self._estimator.estimate(self._in_single()).total_s
        found = choose_kept(len(self._groups), self._seconds_of, self._error_of, single_s, self.tolerance)
        if found.why_single:
            return self._types("fp32", f"fp32: of {self.half}, {found.why_single}", found, single_s), None
        whole, single = len(self._sites), len(self._kept_sites(found.kept))
        layers = f"{whole - single} of {whole} layers" if single else f"all {whole} layers"
        why = (
            f"{layers} in {self.half}, estimated {self._seconds_of(found.kept) * 1e3:.4g} ms where fp32 has "
            f"{single_s * 1e3:.4g}; error {self._errors[found.kept]:.2g}, allowed {self.tolerance:g}"
        )
        return self._types(self.half, why, found, single_s), self._plan(found.kept) if single else None

    def _types(self, dtype: str, why: str, found: TypeChoice, single_s: float) -> NumericTypes:
        layers = tuple(
            TypedLayer(
                self._sites[index].name.removeprefix(f"{TYPE} of "),
                number not in found.kept,
                found.saved_s[number],
                found.alone.get(number),
            )
            for number, group in enumerate(self._groups)
            for index in group
        )
        points = [self._point(kept, kept == found.kept) for kept in self._errors]
        return NumericTypes(
            dtype,
            self.half,
            self.tolerance,
            why,
            layers,
            tuple(sorted(points, key=lambda point: (point.kept, point.error))),
            single_s,
            len(self._errors),
            max(len(group) for group in self._groups),
        )

    def _point(self, kept: Kept, taken: bool) -> FrontPoint:
        """A model that was measured, as a point of the front."""
        count = len(self._kept_sites(kept))
        share = count / len(self._sites)
        return FrontPoint(count, share, self._errors[kept], taken, self._seconds_of(kept))

    def _kept_sites(self, kept: Kept) -> list[Site]:
        return [self._sites[index] for number in sorted(kept) for index in self._groups[number]]

    def _plan(self, kept: Kept) -> ModelPlan:
        return ModelPlan(tuple(sorted((site.name, SINGLE) for site in self._kept_sites(kept))))

    def _lowered(self, plan: ModelPlan) -> LoweredModel:
        compiler, decisions = self._compiler, dict(plan.decisions)
        half = compiler.options.half
        return static_model.lower_model(self.model, compiler.profile, compiler.clock, half, decisions)

    def _in_single(self) -> LoweredModel:
        return static_model.lower_model(self.model, self._compiler.profile, self._compiler.clock)

    def _seconds_of(self, kept: Kept) -> float:
        """Estimated seconds of a run with some groups in fp32."""
        if kept not in self._seconds:
            self._candidate(kept)
            self._advance()
        return self._seconds[kept]

    def _candidate(self, kept: Kept) -> LoweredModel:
        """The model with some groups in fp32; its estimate is kept."""
        lowered = self._lowered(self._plan(kept))
        self._seconds[kept] = self._estimator.estimate(lowered).total_s
        return lowered

    def _planned(self, lowered: LoweredModel) -> PlannedModel:
        """A candidate with programs that are constructed without measuring, once for all candidates."""
        compiler, known = self._compiler, self._programs
        seen = known.spaces.keys() | known.reasons.keys()
        new = tuple(task for task in lowered.tasks if task.workload_hash not in seen)
        seed = compiler.options.seed
        made = static_model.propose(replace(lowered, tasks=new), compiler.profile, seed, compiler.clock)
        self._programs = Plan(
            {**known.spaces, **made.spaces},
            {**known.chosen, **made.chosen},
            {**known.reasons, **made.reasons},
        )
        return PlannedModel(lowered, self._programs, self._programs)

    def _error_of(self, kept: Kept) -> float:
        """The measured error with some groups in fp32; infinite where that does not build or run."""
        if kept not in self._errors:
            self._errors[kept] = self._measured(kept)
            self._advance()
        return self._errors[kept]

    def _measured(self, kept: Kept) -> float:
        folder = self._compiler.folder / _FOLDER
        folder.mkdir()
        try:
            own = replace(self._compiler, folder=folder, model_plan=self._plan(kept))
            builder = replace(self.builder, compiler=own)
            builder.compile_planned(self.model, self._planned(self._candidate(kept)))
            return self.error(builder.directory("tvm"))
        except (BuildError, LoweringError, ScheduleError):
            return math.inf
        finally:
            shutil.rmtree(folder)

    def _advance(self) -> None:
        """Report a model that was estimated or measured, of as many as there are at most."""
        count = len(self._groups)
        total = 2 * count + 2 * len(steps(count)) + 1
        self._done = min(self._done + 1, total)
        self.builder.compiler.clock.progress.advance(self._done, total)
