"""The format of a model file, from its first bytes: nothing heavy is imported for a file that is none."""

from __future__ import annotations

from host.model_file.checkpoints import ULTRALYTICS
from host.model_file.formats import check_file, detect_format
from host.model_file.other_files import is_zip

__all__ = ["ULTRALYTICS", "check_file", "detect_format", "is_zip"]
