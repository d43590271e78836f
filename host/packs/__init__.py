"""A pack: what one board knows, as one signed file for other hosts with a board of the same kind.

    manifest.json      schema, board, date, versions, number of records, size and hash of every file
    manifest.sig       who made it: signature of the manifest by the host's key, as that of a bundle
    records.jsonl      the board's records, a line each
    calibration.json   its calibration, where it has one
    model-N.*          each language model that was fine-tuned for it: what it belongs to, card and weights

A pack is a zip of these, read by the checks that a zip of a bundle passes (`host.bundle.archive`).
"""

from __future__ import annotations

from host.packs.manifest import PackManifest
from host.packs.reading import Origin, PackReader, open_pack
from host.packs.writing import write_pack

__all__ = ["Origin", "PackManifest", "PackReader", "open_pack", "write_pack"]
