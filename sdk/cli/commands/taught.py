"""What a board has taught about a model, in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sdk.cli.console import print_line

if TYPE_CHECKING:
    from host.learned_estimate.evidence import Evidence
    from host.learned_estimate.power import WithheldError
    from host.learned_estimate.taught import KernelEstimate, Taught, TaughtPower

# Kernels that are listed; a page has all of them.
_SHOWN = 12


def print_taught(taught: Taught, kernel: str) -> None:
    """Print the evidence of each rule, what is known of its power, and the two estimates of each kernel.

    Args:
        taught: of the model.
        kernel: the one that is explained, which is listed in any case.
    """
    if taught.remark:
        print_line(f"taught    {taught.remark}")
        return
    for evidence in taught.evidence:
        print_line(f"taught    {_evidence_text(evidence)}")
    for power in taught.power:
        print_line(f"{'power':<10}{_power_text(power)}")
    shown = taught.kernels[:_SHOWN] + tuple(one for one in taught.kernels[_SHOWN:] if one.name == kernel)
    width = max((len(one.name) for one in shown), default=0)
    for one in shown:
        print_line(f"{'':<10}{one.name:<{width}}  {_estimate_text(one)}")
    if len(taught.kernels) > len(shown):
        left = len(taught.kernels) - len(shown)
        print_line(f"{'':<10}and {left} more kernels: --format json names all")


def _evidence_text(evidence: Evidence) -> str:
    since = f" since {evidence.since}" if evidence.since else ""
    models = f"{evidence.models} model{'s' if evidence.models > 1 else ''}"
    what = f"rule {evidence.rule}: {evidence.programs} measured programs of {models}{since}"
    if evidence.agreement_bound is None:
        return f"{what}; too few kernels to judge, not used"
    use = "used" if evidence.convinces else "not used"
    return (
        f"{what}; on {evidence.speed.n} withheld kernels its corrections agree with the times by "
        f"{evidence.agreement:.2f} of 1, at least {evidence.agreement_bound:.2f}, and its first programs are "
        f"{evidence.speed.value:.3f} times as fast: {use}"
    )


def _power_text(power: TaughtPower) -> str:
    what = (
        f"rule {power.rule}: joules of {power.programs} measurements, {power.median_w:.3g} W "
        f"({power.least_w:.3g} to {power.most_w:.3g})"
    )
    return (
        f"{what}; withheld programs {_error_text(power.same_tasks, power.same_tasks.allows)}; "
        f"withheld kernels {_error_text(power.other_tasks, power.other_tasks.convinces)}"
    )


def _error_text(error: WithheldError, used: bool) -> str:
    if not error.count:
        return "none to judge"
    use = "used" if used else "not used"
    return f"{100 * error.learned:.1f}% off, {100 * error.constant:.1f}% by constant watts: {use}"


def _estimate_text(kernel: KernelEstimate) -> str:
    text = f"T {kernel.estimate_s * 1e6:.4g} us, T_hat {kernel.learned_s * 1e6:.4g} us"
    return f"{text}; {kernel.choice}, {kernel.gain:.2f} times as fast" if kernel.changed else text
