"""Fine-tuning the language model for a device, on what was measured there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from host.errors import TlmError
from host.options.engine import LOCAL

if TYPE_CHECKING:
    from host.tlm.training.finetune import FinetuneResult, Progress


@dataclass(frozen=True)
class Request:
    """A fine-tuning that the user requests.

    Attributes:
        device: name of it.
        records: store of records; the user's own if "".
        threads: of the programs; 0 takes all cores of the device.
        steps: batches of each training; 0 for as many as its tasks ask for.
        out: folder of the checkpoints; None for the device's own, which deployments use.
        resume: go on with an interrupted training.
        seed: of the batches.
        engine: whose hosts train; see `host.execution.open_engine`.
    """

    device: str = "local"
    records: str = ""
    threads: int = 0
    steps: int = 0
    out: Path | None = None
    resume: bool = False
    seed: int = 0
    engine: str = LOCAL


def finetune_device(
    request: Request, report: Callable[[Progress], None], note: Callable[[str], None]
) -> FinetuneResult:
    """Trains on a device's records; the new model is used only if it beats the old one on withheld records.

    Args:
        request: of the user.
        report: called after each step.
        note: called with a line about unusable records and about models that no longer apply.

    Raises:
        TlmError: nothing was measured there, or as `host.tlm.training.finetune.finetune`.
        EdgeError: the records cannot be read, or the device does not answer.
    """
    from host.compile.device_profile import profile_of
    from host.execution import open_engine
    from host.records import profile_data
    from host.tlm.language.vocabulary import Vocabulary
    from host.tlm.model import checkpoints
    from host.tlm.model.card import read_card
    from host.tlm.training.finetune import FinetuneOptions, examples_of_records, finetune
    from host.transport import connect
    from sdk.management.records import open_store

    base = checkpoints.shipped()
    with connect(request.device) as device:
        profile = profile_of(device, request.threads, note)
    skipped: Counter[str] = Counter()
    with open_store(request.records, must_exist=True) as store:
        found = store.select(profile_data(profile))
        examples = examples_of_records(found, Vocabulary(), skipped)
    for reason, count in skipped.most_common():
        note(f"{count} records {reason} are skipped")
    if not examples:
        raise TlmError(
            f"nothing to learn from: no programs were measured on {request.device} with {profile.threads} "
            "threads; sdk deploy --trials N measures some"
        )
    if request.out is None:
        home = checkpoints.prepare(profile, read_card(base).weights)
        present = checkpoints.model_for(profile, note=note)
    else:
        home = request.out
        present = checkpoints.accepted(home) or base
    options = FinetuneOptions(
        start=base,
        out=home,
        present=present,
        steps=request.steps,
        resume=request.resume,
        seed=request.seed,
    )
    with closing(open_engine(request.engine)) as engine:
        return finetune(options, examples, report, engine)
