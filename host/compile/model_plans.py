"""Plans of a whole model: the one on record, and others as bundles to measure beside it."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from host.compare.entrants import ratio_between
from host.compile import static_model
from host.compile.tuning.kernel_tuning import records_of
from host.compile.variants import FASTEST, GPU, Variant
from host.errors import BuildError, EdgeError, LoweringError, one_line
from host.model import DeviceProfile, ImportedModel, LoweredModel, TimingPolicy
from host.model.site import TYPE
from host.plans.outcome import PlanOutcome, outcome_of
from host.plans.plan import subject_of
from host.plans.records import PlanTrial, remember, remembered
from host.progress import Silence, StageClock
from host.records import RecordOrigin
from host.versions import versions

if TYPE_CHECKING:
    from host.compare.selection import VariantSelection
    from host.compile.bundle_builder import BundleBuilder
    from host.compile.static_model import Compiled
    from host.options import CompileOptions
    from host.plans.proposers import Proposed


def lowered_by_record(
    model: ImportedModel, profile: DeviceProfile, options: CompileOptions, clock: StageClock
) -> LoweredModel:
    """A lowered model with the plan that was measured as the best on such a device, if one is on record.

    Raises:
        ImportFailed: the compiler cannot express the model.
        LoweringError: it has no lowering on this target.
    """
    own = static_model.lower_model(model, profile, clock, options.half)
    if not own.sites:
        return own
    plan = remembered(records_of(options), subject_of(own), profile, options.goal)
    if plan is None or plan.is_own:
        return own
    try:
        return static_model.lower_model(model, profile, clock, options.half, dict(plan.decisions))
    except LoweringError as error:
        clock.progress.note(f"the plan on record is left out: {one_line(error)}")
        return own


@dataclass(frozen=True, eq=False)
class MeasuredPlans:
    """Plans of a model that are compiled to be measured beside the one that stands.

    Attributes:
        subject: what records of its plans are for; "" where there are none.
        standing: the plan that the model is compiled with.
        others: by the name of their variants.
        variants: their bundles.
    """

    subject: str = ""
    standing: Proposed | None = None
    others: Mapping[str, Proposed] = field(default_factory=dict)
    variants: tuple[Variant, ...] = ()


def compiled_plans(
    builder: BundleBuilder, model: ImportedModel, made: Compiled | None, count: int, timing: TimingPolicy
) -> MeasuredPlans:
    """The best plans by the estimate beside the one that a model was compiled with.

    Programs of kernels that a plan does not change are those on record or of the cache. Where no plan can be
    measured, a note says why.

    Args:
        builder: that compiled the model.
        model: with its module.
        made: the compiled model; None where its own runtime takes its place.
        count: of plans, at most.
        timing: of the device.
    """
    from host.plans.estimate import PlanEstimator
    from host.plans.proposers import Space, by_estimate

    compiler = builder.compiler
    if not count:
        return MeasuredPlans()
    why = _why_no_plans(builder, made, timing)
    if made is None or why:
        compiler.clock.progress.note(f"--plans {count}: no plan is measured: {why}")
        return MeasuredPlans()
    with compiler.clock.stage("plan"):
        profile, half = compiler.profile, compiler.options.half
        # Dozens of lowerings are one stage.
        silent = StageClock(Silence())

        types = {site.name: site.taken for site in made.lowered.sites if site.kind == TYPE}

        def lower(decisions: Mapping[str, int]) -> LoweredModel:
            return static_model.lower_model(model, profile, silent, half, {**types, **decisions})

        own = lower({})
        space = Space(lower, own, PlanEstimator(profile, compiler.options.seed))
        standing = space.of(made.lowered)
        wanted = [one for one in (space.passes(), *by_estimate(space, count)) if one.plan != standing.plan]
    variants: dict[str, Variant] = {}
    for one in wanted[:count]:
        name = one.plan.name
        try:
            compiled = _compiled(builder, model, one)
        except (BuildError, LoweringError) as error:
            compiler.clock.progress.note(f"{name} is left out: {one_line(error)}")
            continue
        variants[name] = Variant(
            name,
            "tvm",
            builder.directory(name) / "tvm",
            profile.threads,
            instead_of=FASTEST,
            tasks=compiled.tasks,
            calls=compiled.lowered.calls,
            made=compiled,
        )
    others = {one.plan.name: one for one in wanted if one.plan.name in variants}
    return MeasuredPlans(subject_of(own), standing, others, tuple(variants.values()))


def _why_no_plans(builder: BundleBuilder, made: Compiled | None, timing: TimingPolicy) -> str:
    if made is None:
        return "the model is not compiled"
    if not timing.decides:
        return f"{builder.compiler.profile.device} {timing.state}, and its times do not say which is faster"
    return "" if made.lowered.sites else "this model leaves none open"


def _compiled(builder: BundleBuilder, model: ImportedModel, proposed: Proposed) -> Compiled:
    """The bundle of a plan, in a folder of its own."""
    compiler = builder.compiler
    folder = builder.directory(proposed.plan.name)
    folder.mkdir()
    options = replace(compiler.options, trials=0, budget_s=0.0, method="auto")
    own = replace(compiler, options=options, folder=folder, model_plan=proposed.plan)
    return replace(builder, compiler=own).compile(model)


def decided_plan(
    builder: BundleBuilder,
    made: Compiled,
    plans: MeasuredPlans,
    selection: VariantSelection | None,
    taken: str,
) -> PlanOutcome | None:
    """The plan of the model that is deployed; what was measured is kept in the records.

    A GPU's bundle has none: then no plan of the CPU was taken, and nothing is kept.

    Args:
        builder: that compiled the model.
        made: the compiled model that is deployed.
        plans: that were measured.
        selection: the measurements.
        taken: the name of the variant that is deployed.
    """
    if taken == GPU:
        return None
    if selection is None or plans.standing is None or not plans.variants:
        return outcome_of(made.lowered.sites, builder.compiler.options.goal)
    trials = _trials(plans, selection, taken)
    options = builder.compiler.options
    if any(one.taken for one in trials) and len(trials) > 1:
        origin = RecordOrigin(
            command=options.command,
            seed=options.seed,
            versions={**versions(), **builder.compiler.profile.software},
            model=made.lowered.name,
            device=builder.compiler.profile.device,
            host=platform.node(),
        )
        try:
            remember(records_of(options), plans.subject, builder.compiler.profile, trials, origin)
        except EdgeError as error:
            builder.compiler.clock.progress.note(f"the plans are not kept in the records: {one_line(error)}")
    return outcome_of(made.lowered.sites, selection.objective, selection.why, trials)


def _trials(plans: MeasuredPlans, selection: VariantSelection, taken: str) -> Sequence[PlanTrial]:
    """The plans of a comparison that have times which count, the one that stood first."""
    assert plans.standing is not None
    here = {one.name: one for one in reversed(selection.points) if one.mode == selection.home}
    stood = here.get(FASTEST)
    if stood is None or stood.measurement is None:
        return ()
    objective = selection.objective
    stays = taken not in plans.others
    trials = [PlanTrial(plans.standing, stood.measurement, None, stays, objective)]
    for name, proposed in plans.others.items():
        point = here.get(name)
        if point is not None and point.measurement is not None:
            ratio = ratio_between(point, stood, objective)
            trials.append(PlanTrial(proposed, point.measurement, ratio, name == taken, objective))
    return trials
