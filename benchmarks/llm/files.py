"""Bundles and files of peers of one model: made where they are missing, kept where the user says so."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.llm.deployment import deployed
from benchmarks.result_file import commit


class Files:
    """The files of one model with weights of one type.

    Each is written under another name first, so that an interrupted run leaves none that looks whole.

    Args:
        folder: below which they lie.
        model: name of the model.
        quantize: "int8", "int4" or "none".
    """

    def __init__(self, folder: Path, model: str, quantize: str) -> None:
        self._folder = folder.absolute() / f"{model}-{quantize}"
        self._quantize = quantize
        self._folder.mkdir(parents=True, exist_ok=True)

    def bundle(
        self, model: Path, *, threads: int, context: int, sequences: int = 1
    ) -> tuple[Path, dict[str, Any]]:
        """A bundle, and what its deployment found.

        Args:
            model: folder of transformers.
            threads: to compute with.
            context: tokens that it keeps.
            sequences: texts that it keeps.

        Returns:
            The folder; and see `deployed`, with `deploy_commit`, the sources that made it.

        Raises:
            EngineError: there is no bundle.
        """
        path = self._folder / f"bundle-{threads}-{context}-{sequences}"
        facts = path.with_suffix(".json")
        if path.is_dir() and facts.is_file():
            found: dict[str, Any] = json.loads(facts.read_text())
            return path, found
        shutil.rmtree(path, ignore_errors=True)
        shape = {"threads": threads, "context": context, "sequences": sequences}
        made = deployed(model, path, quantize=self._quantize, **shape) | {"deploy_commit": commit()}
        facts.write_text(json.dumps(made))
        return path, made

    def of_peer(self, name: str, write: Callable[[Path], None]) -> Path:
        """A file, or a folder, of a peer.

        Args:
            name: of the file.
            write: makes it at a path.
        """
        path = self._folder / name
        if not path.exists():
            partial = path.with_name(f"partial-{name}")
            shutil.rmtree(partial, ignore_errors=True)
            partial.unlink(missing_ok=True)
            write(partial)
            partial.replace(path)
        return path
