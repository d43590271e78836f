"""Find the kernel that makes the outputs of a compiled model wrong."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from host.bundle import write_variant
from host.compare.verification import DEFAULT_TOLERANCE, first_difference, sensitivity
from host.compile.static_model import Compiled
from host.errors import BuildError, DeviceError, EngineError
from host.model import DeviceProfile, GoldenCase

if TYPE_CHECKING:
    from host.transport import Device, Session

# Unscheduled kernels may be a hundred times slower than ours.
_TIME_LIMIT_S = 1800.0


def first_wrong_kernel(
    device: Device,
    session: Session,
    bundle: Path,
    made: Compiled,
    profile: DeviceProfile,
    cases: Sequence[GoldenCase],
) -> str:
    """Run the same module with unscheduled kernels and name the first kernel that differs.

    A model that enlarges a change of its inputs by a millionth beyond the tolerance has no right outputs in
    single precision; that is what is said of it.

    Args:
        device: on which the outputs are wrong.
        session: with the compiled model loaded.
        bundle: directory of the bundle.
        made: the compiled model.
        profile: of the device.
        cases: the golden case with the largest error, and before it those that made the state that it reads.

    Returns:
        A clause for the message of the failed verification.
    """
    reference = bundle.with_name("unscheduled")
    *before, case = cases
    try:
        moved = sensitivity(session, case)
        if moved > max(DEFAULT_TOLERANCE, case.spread):
            return (
                "the model itself is unstable: inputs that are off by a millionth move its outputs by "
                f"{moved:.2g} of the largest value, so that no two engines agree; check its weights (random "
                "ones can do this) and the range of its inputs"
            )
        _build_unscheduled(bundle, reference, made, profile)
        with device.open_session("tvm", threads=1, time_limit_s=_TIME_LIMIT_S) as plain:
            plain.load(reference)
            for one in before:
                # Other cases have changed the state of the compiled model since.
                session.run(one.inputs)
                plain.run(one.inputs)
            ours, theirs = session.intermediates(case.inputs), plain.intermediates(case.inputs)
            return first_difference(ours, theirs, case.spread)
    except (BuildError, EngineError, DeviceError) as error:
        # The verdict stands whatever becomes of the search for its reason.
        return f"the kernel could not be found: {error}"
    finally:
        shutil.rmtree(reference, ignore_errors=True)
        reference.with_name("unscheduled.so").unlink(missing_ok=True)


def _build_unscheduled(bundle: Path, reference: Path, made: Compiled, profile: DeviceProfile) -> None:
    from host.build import KernelCache, build_model

    functions = {task.name: task.function for task in made.lowered.tasks}
    library = reference.with_name("unscheduled.so")
    build_model(made.lowered, functions, library, cache=KernelCache())
    write_variant(reference, bundle, threads=1, library=library)
