"""Tables of what learning does on modelled boards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.result_file import Result
from benchmarks.tables.table import markdown

_ALL = "all"
_CHOICES = {
    "process": "learned estimate, cautious",
    "process_mean": "its mean, without caution",
    "deployed": "its mean where the evidence convinces, else the least estimate (the product's)",
    "deployed_shuffled": "the same, taught with shuffled times",
    "process_shuffled": "learned estimate, cautious, taught with shuffled times",
    "process_mean_shuffled": "its mean, taught with shuffled times",
    "parts": "parts of the estimate with factors",
    "parts_shuffled": "the same, taught with shuffled times",
    "chance": "one at random",
    "fastest": "the fastest",
}
_CONSTRUCTED = {
    **_CHOICES,
    "chance": "one of Gensor's at random",
    "drawn_t": "as many random programs by the estimate",
    "drawn_mean": "the same by the learned estimate's mean",
}


def first_programs(result: Result) -> list[str]:
    """Each ratio of two arms by board, and over all boards."""
    ratios = result.figures["ratios"]
    boards = sorted({board for found in ratios.values() for board in found} - {_ALL})
    rows = [
        (name.replace("/", " / "), *(_mean(found.get(board)) for board in boards), _bounded(found[_ALL]))
        for name, found in ratios.items()
    ]
    return markdown(("ratio", *boards, "all, 95%; median"), rows)


def gates(result: Result) -> list[str]:
    """How often the gate of fine-tuning accepts, by kind of training and by what is true."""
    rows = []
    for kind, found in result.figures["kinds"].items():
        counts = (found["truth"][truth] for truth in ("better", "neither", "worse"))
        accepted = (f"{one['accepted']} of {one['trainings']}" for one in counts)
        speeds = (_interval(found[part]) for part in ("first", "best"))
        wrong = found["truth"]["better"]["trainings"] - 2 * found["truth"]["better"]["accepted"]
        right = f"{1.0 - (wrong + found['accepted']) / found['trainings']:.1%}"
        rows.append((kind, f"{found['accepted']} of {found['trainings']}", *accepted, right, *speeds))
    titles = ("accepted", "of what is better", "of what is neither", "of what is worse", "right")
    return markdown(("trained on", *titles, "first programs, 95%", "best of ten, 95%"), rows)


def gate_arms(result: Result) -> list[str]:
    """What the new model's choices and those of chance are beside the model in use, by kind of training."""
    rows = []
    for kind, found in result.figures["kinds"].items():
        arms = {"new model by T": found, **{_GATE_ARMS[arm]: one for arm, one in found["arms"].items()}}
        for arm, one in arms.items():
            rows.append((kind, arm, _interval(one["first"]), _interval(one["best"])))
    return markdown(("trained on", "arm", "first programs, 95%", "best of ten, 95%"), rows)


def gate_errors(result: Result) -> list[str]:
    """How often the gate accepts where the times of the tasks that judge are shuffled anew."""
    found = {
        kind: one["false_acceptance"]
        for kind, one in result.figures["kinds"].items()
        if "false_acceptance" in one and kind != _ALL
    }
    counts = [*sorted({count for one in found.values() for count in one} - {_ALL}, key=int), _ALL]
    rows = [
        (kind, *(f"{one[count]:.1%}" if count in one else "" for count in counts))
        for kind, one in found.items()
    ]
    return markdown(("trained on", *(f"{count} tasks judge" for count in counts)), rows)


def headroom(result: Result) -> list[str]:
    """Time of constructed programs over that of the fastest known ones, by kind and board."""
    kinds = result.figures["headroom"]
    boards = [board for board in kinds[_ALL] if board != _ALL]
    rows = [
        (kind, *(_left(found.get(board)) for board in boards), _left(found[_ALL]))
        for kind, found in kinds.items()
    ]
    return markdown(("kind", *boards, _ALL), rows)


def _left(figure: Mapping[str, Any] | None) -> str:
    if figure is None:
        return ""
    return f"{figure['value']:.3f}; {figure['below']} of {figure['n']}"


def _interval(found: Mapping[str, float | None]) -> str:
    bounds = "" if found["low"] is None else f" ({found['low']:.3f} to {found['high']:.3f})"
    return f"{found['value']:.3f}{bounds}"


def by_measurements(result: Result) -> list[str]:
    """Ratios of arms by measurements a task and by kind or board, and over all; shares of the best."""
    arms = [found for ratios in result.figures["ratios"].values() for found in ratios.values()]
    kinds = sorted({kind for found in arms for kind in found} - {_ALL})
    rows = []
    for budget, ratios in result.figures["ratios"].items():
        for pair, found in ratios.items():
            row = (budget, pair.replace("/", " / "), *(_mean(found.get(kind)) for kind in kinds))
            rows.append((*row, _bounded(found[_ALL])))
    for budget, by_arm in result.figures["share_of_best"].items():
        for arm, shares in sorted(by_arm.items()):
            row = (
                budget,
                f"{arm}, share of best",
                *(f"{shares[k]:.3f}" if k in shares else "" for k in kinds),
            )
            rows.append((*row, f"{shares[_ALL]:.3f}"))
    clustered = any("over_networks" in found[_ALL] for found in arms)
    last = "all, 95%; median" + ("; over networks, 95%" if clustered else "")
    return markdown(("measured", "ratio", *kinds, last), rows)


def pairs_by_budget(result: Result) -> list[str]:
    """Ratios of arms over all boards, by measurements a task."""
    by_budget = result.figures["ratios"]
    pairs = dict.fromkeys(pair for ratios in by_budget.values() for pair in ratios)
    rows = [
        (
            pair.replace("/", " / "),
            *(_bounded(found[pair][_ALL]) if pair in found else "" for found in by_budget.values()),
        )
        for pair in pairs
    ]
    return markdown(("ratio, 95%; median", *(f"{budget} measured" for budget in by_budget)), rows)


def shares_by_budget(result: Result) -> list[str]:
    """Share of the best known program by arm and measurements a task, and that of the worst task."""
    by_budget = result.figures["share_of_best"]
    least = result.figures.get("worst_share", {})
    rows = []
    for arm in dict.fromkeys(arm for found in by_budget.values() for arm in found):
        cells = []
        for budget, found in by_budget.items():
            worst = least.get(budget, {}).get(arm, {}).get(_ALL)
            share = f"{found[arm][_ALL]:.3f}" if arm in found else ""
            cells.append(share if worst is None else f"{share}; {worst:.3f}")
        rows.append((arm, *cells))
    return markdown(("arm, share; of the worst task", *(f"{one} measured" for one in by_budget)), rows)


def shares(result: Result) -> list[str]:
    """Share of the best known program by arm and board."""
    found = result.figures["share_of_best"]
    boards = sorted({board for arm in found.values() for board in arm} - {_ALL})
    rows = [
        (arm, *(f"{by_board[board]:.3f}" for board in (*boards, _ALL) if board in by_board))
        for arm, by_board in sorted(found.items(), key=lambda item: -item[1][_ALL])
    ]
    return markdown(("arm", *boards, _ALL), rows)


def published(result: Result) -> list[str]:
    """Modelled beside published ratios of boards."""
    rows = [
        (name, f"{one['published']:.2f}", f"{one['modelled']:.2f}", f"{one['deviation']:.2f}")
        for name, one in result.figures["ratios"].items()
    ]
    return markdown(("network, slower / faster board", "ncnn", "modelled", "modelled / ncnn"), rows)


def _mean(figure: Mapping[str, Any] | None) -> str:
    return "" if figure is None else f"{figure['geomean']:.3f}"


def _bounded(figure: Mapping[str, Any]) -> str:
    bounds = "" if figure["low"] is None else f" ({figure['low']:.3f} to {figure['high']:.3f})"
    networks = figure.get("over_networks")
    return f"{figure['geomean']:.3f}{bounds}; {figure['median']:.3f}" + (
        f"; {_interval(networks)}" if networks else ""
    )


def withheld(result: Result) -> list[str]:
    """What records of a board add on its other networks, by arm: each board, and all with intervals."""
    by_board = result.figures["by_board"]
    rows = []
    for arm, title in _CHOICES.items():
        if arm not in result.figures["all"]["all"]:
            continue
        boards = [f"{found['all'][arm]['value']:.3f}" for _, found in sorted(by_board.items())]
        both = [_valued(result.figures["all"][pool][arm]) for pool in ("all", "drawn")]
        rows.append((title, *boards, *both))
    return markdown(("choice", *sorted(by_board), "all boards", "all boards, drawn programs alone"), rows)


def constructed(result: Result) -> list[str]:
    """The same among Gensor's programs alone, beside random programs by the same rankers."""
    by_board, every = result.figures["by_board"], result.figures["all"]["constructed"]
    boards = [board for board, found in sorted(by_board.items()) if "constructed" in found]
    rows = [
        (
            title,
            *(f"{by_board[board]['constructed'][arm]['value']:.3f}" for board in boards),
            _valued(every[arm]),
        )
        for arm, title in _CONSTRUCTED.items()
        if arm in every
    ]
    return markdown(("choice", *boards, "all boards, 95%; median"), rows)


_ORDERS = {
    "t": "T",
    "others": "T_hat, other networks' records",
    "ten": "and ten of the task",
    "ten_alone": "ten of the task alone",
    "shuffled": "shuffled times",
    "repeated": "measured again",
}


def orders(result: Result) -> list[str]:
    """Spearman's correlation of each estimate with time by kind, and how many tasks reach the target."""
    rows = []
    for kind, arms in result.figures["kinds"].items():
        ten = arms["ten"]
        cells = [_correlation(arms[arm]) if arm in arms else "" for arm in _ORDERS]
        rows.append((kind, *cells, f"{ten['reached']} of {ten['tasks']}"))
    return markdown(("kind", *_ORDERS.values(), f"tasks that reach {result.figures['target']}"), rows)


_CHAIN_ORDERS = {
    "t": "T",
    "parts": "T_hat by the rule of the parts",
    "chains": "T_hat by other chains alone",
    "parts_and_chains": "T_hat by both",
}


def chain_orders(result: Result) -> list[str]:
    """Spearman's correlation of each estimate with the times of chains, by simulated board."""
    rows = [
        (board, arms["t"]["tasks"], *(_correlation(arms[arm]) for arm in _CHAIN_ORDERS))
        for board, arms in result.figures["orders"].items()
    ]
    return markdown(("board, seed", "chains", *_CHAIN_ORDERS.values()), rows)


def expected_costs(result: Result) -> list[str]:
    """What T_hat expects of the first program of each arm, and its share of the best known."""
    shares = result.figures["share_of_best"]["0"]
    rows = [
        (arm, f"{cost:.3f}", f"{shares[arm][_ALL]:.3f}")
        for arm, cost in sorted(result.figures["expected"].items(), key=lambda one: one[1])
    ]
    return markdown(("first program of", "T_hat over that of `optimum`", "share of best"), rows)


def space_sizes(result: Result) -> list[str]:
    """How many legal programs tasks have, by board and rule."""
    rows = [
        (board, rule, one["tasks"], one["large"], f"{one['median']:.3g}", f"{one['most']:.3g}")
        for board, by_rule in result.figures["sizes"].items()
        for rule, one in by_rule.items()
    ]
    return markdown(("board", "rule", "tasks", "with more than 100,000", "median", "most"), rows)


def _correlation(figure: Mapping[str, Any]) -> str:
    bounds = "" if figure["low"] is None else f" ({figure['low']:.2f} to {figure['high']:.2f})"
    return f"{figure['mean']:.2f}{bounds}; {figure['median']:.2f}"


_ENERGY = {
    "learned": "chosen and taken by seconds and watts (the product's)",
    "latency_by_energy": "chosen and confirmed by seconds, taken by seconds and watts",
    "latency": "chosen and taken by seconds",
    "random_ranked": "random programs, chosen and taken by seconds and watts",
    "random": "random programs, each the best of 8 by the estimate, taken by seconds and watts",
    "pool": "the best of 300 random programs, by the truth",
    "fastest": "the fastest program, by the truth",
}


def energy(result: Result) -> list[str]:
    """True cost of what each arm takes over the optimum: joules by board and in all, and EDP."""
    costs = result.figures["cost"]
    boards = sorted({board for found in costs["energy"].values() for board in found} - {_ALL})
    rows = [
        (
            title,
            *(f"{costs['energy'][arm][board]['value']:.3f}" for board in boards),
            _valued(costs["energy"][arm][_ALL]),
            _valued(costs["edp"][arm][_ALL]),
        )
        for arm, title in _ENERGY.items()
    ]
    return markdown(("programs", *boards, "joules, all boards, 95%; median", "joules x seconds"), rows)


def _valued(figure: Mapping[str, Any]) -> str:
    bounds = "" if figure["low"] is None else f" ({figure['low']:.3f} to {figure['high']:.3f})"
    return f"{figure['value']:.3f}{bounds}; {figure['median']:.3f}"


_GATE_ARMS = {
    "before_that": "model in use by T_hat",
    "new_that": "new model by T_hat",
    "chance": "chance by T",
    "chance_that": "chance by T_hat",
}
_SETS = {"measured": "inside of 7 networks, AVX2", "modelled": "alone, networks on modelled boards"}
_DIVISIONS = {
    "chance": "random programs, each the best of some by the estimate; the scheduler",
    "before": "expected improvement; the scheduler, first programs are trials",
    "scheduled": "expected improvement; the scheduler",
    "across": "expected saving of all kernels together",
    "fastest": "the fastest programs",
}


def trial_allocation(result: Result) -> list[str]:
    """Speed of models by arm, and ratios of arms, by the trials of each kernel in the mean."""
    columns = [(name, trials) for name, found in result.figures["sets"].items() for trials in found]
    figures = [result.figures["sets"][name][trials] for name, trials in columns]
    rows = [
        (_DIVISIONS[arm], *(_valued(one["speed"][arm]) for one in figures)) for arm in figures[0]["speed"]
    ]
    for pair in figures[0]["ratios"]:
        rows.append((pair.replace("/", " / "), *(_valued(one["ratios"][pair]) for one in figures)))
    return markdown(
        ("division", *(f"{_SETS[name]}; {trials} trials a kernel" for name, trials in columns)), rows
    )
