"""The evaluation: every proposer with every number of measurements, on the searched tasks of networks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from host.errors import DeviceError, EdgeError, SessionLost, UserError
from host.gensor import Gensor
from host.schedules.design import DesignSpace
from host.schedules.proposer import Proposer
from host.tlm.proposer import Tlm
from host.tuning.proposers.random_sampling import RandomSampling
from research.evaluation.baseline import Baseline, BaselineTask, baseline_names, read_baseline
from research.evaluation.bench import Bench, MeasurePlan, open_bench
from research.evaluation.comparison import FinalistComparison, baseline_program, compare_finalists
from research.evaluation.learning import Learner, LearnOptions
from research.evaluation.proposals import Selection, Subject
from research.evaluation.summary import LEARNING, TLM, TaskResult, finalist, network_figures
from research.evaluation.validity import Validity, Writer

if TYPE_CHECKING:
    from host.model import DeviceProfile
    from host.transport import Device

SCHEMA = "edgetlm.evaluation/1"
METHODS = ("tlm", "gensor", "tree", "random")


@dataclass(frozen=True)
class EvaluateOptions:
    """Options of an evaluation.

    Attributes:
        baselines: folder of the searched baselines.
        checkpoint: of the language model.
        networks: names; empty for all networks in the folder.
        budgets: numbers of measurements for each task; 0 takes the first proposal.
        methods: names from `METHODS`.
        plan: how programs are measured.
        seed: of the proposers.
        finetune: batches of each training of a language model that is fine-tuned between its measurements, as
            a further method; 0 leaves this method out.
    """

    baselines: Path
    checkpoint: Path
    networks: tuple[str, ...] = ()
    budgets: tuple[int, ...] = (0, 1, 10, 32)
    methods: tuple[str, ...] = METHODS
    plan: MeasurePlan = field(default_factory=MeasurePlan)
    seed: int = 0
    finetune: int = 0


def evaluate(
    device: Device,
    profile: DeviceProfile,
    options: EvaluateOptions,
    note: Callable[[str], None],
    keep: Callable[[dict[str, Any]], None],
) -> dict[str, Any]:
    """Run the evaluation without earlier records.

    Args:
        device: connected, on which programs are measured.
        profile: of the device, with the threads of the baselines.
        options: of the evaluation.
        note: called with a line for every task.
        keep: called with the figures so far after every network.

    Returns:
        The figures as plain data: `baseline`, `networks` by name and more.

    Raises:
        UserError: a baseline does not exist, or the baselines are of different searches.
        EdgeError: a baseline is damaged, or none of the networks can be evaluated.
        DeviceError: the device was lost.
    """
    baselines = load_baselines(options)
    networks: dict[str, Any] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="edgetlm-evaluation-")))
        bench = stack.enter_context(open_bench(device, profile, folder, options.plan))
        proposers = _proposers(options)
        load_s = _warmed(proposers, bench, baselines[0], options.seed)
        figures = {
            "schema": SCHEMA,
            "baseline": baselines[0].name,
            "checkpoint": options.checkpoint.name,
            "seed": options.seed,
            "threads": profile.threads,
            "board": profile.board.name,
            "model_load_s": load_s,
            "networks": networks,
        }
        for baseline in baselines:
            networks[baseline.network] = _network(bench, baseline, proposers, options, load_s, note)
            keep(figures)
    if all("error" in entry for entry in networks.values()):
        raise EdgeError("; ".join(f"{name}: {entry['error']}" for name, entry in networks.items()))
    return figures


def load_baselines(options: EvaluateOptions) -> list[Baseline]:
    """The baselines of the requested networks.

    Raises:
        UserError: a baseline does not exist, or they are of different searches.
        EdgeError: a baseline is damaged.
    """
    # An empty folder is as good as a missing file: the message names the first network of the issue.
    names = options.networks or baseline_names(options.baselines) or ("mobilenetv2",)
    baselines = [read_baseline(options.baselines, name) for name in names]
    if len({(baseline.name, baseline.threads) for baseline in baselines}) > 1:
        kinds = ", ".join(f"{b.network} {b.name} with {b.threads} threads" for b in baselines)
        raise UserError(f"baselines of different searches cannot be compared: {kinds}; give --networks")
    return baselines


def _proposers(options: EvaluateOptions) -> dict[str, Proposer]:
    known: dict[str, Proposer] = {
        TLM: Tlm(options.checkpoint, estimate=DesignSpace.estimate_s),
        "gensor": Gensor(),
        "tree": Gensor(tree=True),
        "random": RandomSampling(),
    }
    return {name: known[name] for name in options.methods}


def _warmed(proposers: Mapping[str, Proposer], bench: Bench, baseline: Baseline, seed: int) -> float:
    """Seconds of loading the language model, which are counted once instead of in the first task."""
    if TLM not in proposers:
        return 0.0
    for entry in baseline.tasks:
        subject = Subject(bench, entry.task)
        if subject.space is not None and subject.space.decisions:
            begin = time.perf_counter()
            proposers[TLM].propose(subject.space, bench.profile, (), 1, seed)
            first = time.perf_counter() - begin
            begin = time.perf_counter()
            proposers[TLM].propose(subject.space, bench.profile, (), 1, seed)
            return max(0.0, first - (time.perf_counter() - begin))
    return 0.0


def _network(
    bench: Bench,
    baseline: Baseline,
    proposers: Mapping[str, Proposer],
    options: EvaluateOptions,
    load_s: float,
    note: Callable[[str], None],
) -> dict[str, Any]:
    same_target = dict(baseline.target) == dict(bench.profile.board.tvm_target)
    if not same_target:
        note(f"{baseline.network}: its baseline was searched for another target than this device's")
    results: dict[str, TaskResult] = {}
    try:
        subjects = {entry.task.workload_hash: Subject(bench, entry.task) for entry in baseline.tasks}
        learned = _learned(bench, baseline, subjects, options, note)
        writer = Writer(options.checkpoint) if TLM in proposers else None
        for entry in (*baseline.tasks, *baseline.beside):
            key = entry.task.workload_hash
            subject = subjects.get(key) or Subject(bench, entry.task)
            selections = {
                (method, budget): subject.select(proposer, budget, options.seed)
                for method, proposer in proposers.items()
                for budget in options.budgets
            }
            selections |= {(LEARNING, budget): one for (task, budget), one in learned.items() if task == key}
            comparison = _compared(bench, baseline, entry, selections)
            validity = Validity()
            if writer is not None and subject.space is not None and subject.space.decisions:
                validity = writer.check(subject.space, options.seed)
            results[key] = TaskResult(selections, comparison, validity)
            note(task_line(baseline.network, entry.task.name, comparison))
    except SessionLost as error:
        return {"error": str(error)}
    except DeviceError:
        raise
    except EdgeError as error:
        return {"error": str(error)}
    methods = (*proposers, LEARNING) if learned else tuple(proposers)
    figures = network_figures(baseline, results, methods, options.budgets, load_s)
    return {**figures, "same_target": same_target}


def _compared(
    bench: Bench,
    baseline: Baseline,
    entry: BaselineTask,
    selections: Mapping[tuple[str, int], Selection],
) -> FinalistComparison:
    """Comparison of the finalists with the search's program and the programs of longer searches."""
    finalists = {finalist(*which): selection.built for which, selection in selections.items()}
    for trials in entry.searches:
        if trials != baseline.trials:
            finalists[f"metaschedule-{trials}"] = baseline_program(bench, entry, trials)
    return compare_finalists(bench, entry, baseline_program(bench, entry, baseline.trials), finalists)


def _learned(
    bench: Bench,
    baseline: Baseline,
    subjects: Mapping[str, Subject],
    options: EvaluateOptions,
    note: Callable[[str], None],
) -> dict[tuple[str, int], Selection]:
    """Results of the model that learns, by task and budget; empty if it is left out."""
    if not options.finetune:
        return {}
    folder = bench.folder / f"learning-{baseline.network}"
    how = LearnOptions(options.checkpoint, folder, options.finetune, options.seed)
    with Learner(subjects, how, lambda text: note(f"{baseline.network}: {text}")) as learner:
        return learner.run(options.budgets)


def task_line(network: str, name: str, comparison: FinalistComparison) -> str:
    """The ratios of speed of a task as one line."""
    ratios = [f"{one} {comparison.baseline_s / seconds:.2f}" for one, seconds in comparison.seconds.items()]
    wrong = [f"{one} is left out: {reason}" for one, reason in comparison.wrong.items()]
    return f"{network} {name}: " + "  ".join([*ratios, *wrong])
