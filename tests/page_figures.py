"""What the pages of deployments weigh, and what a checker of pages finds in them.

    python -m tests.page_figures [--models NAME ...] [--json FILE]

Each model of the zoo is deployed on this machine, and its page is opened in a browser at three widths, with
light and with dark colours (`tests.page_audit`). Ends with 1 if a page has a fault or is too large.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import tempfile
from pathlib import Path
from typing import Any

import sdk
from benchmarks.result_file import add_json_option, heading, write_result
from research.models.export import export
from sdk.progress import Silence
from tests.browser import LARGEST_PAGE_BYTES
from tests.page_audit import audit_in_browser

SCHEMA = "edgetlm.page/1"
# Pixels across: a phone, a tablet and a window of a desktop.
WIDTHS = (400, 800, 1280)
_MODELS = ("mobilenetv2", "bert-tiny")


def figures_of(page: Path, folder: Path) -> dict[str, Any]:
    """Bytes and faults of a page.

    Args:
        page: the file.
        folder: for what the browser writes; empty.
    """
    audits = [
        audit_in_browser(page, folder / f"{width}-{dark}", width, dark)
        for width in WIDTHS
        for dark in (False, True)
    ]
    content = page.read_bytes()
    return {
        "bytes": len(content),
        "gzip_bytes": len(gzip.compress(content, mtime=0)),
        "widths": list(WIDTHS),
        "texts": max(len(audit.contrasts) for audit in audits),
        "least_contrast": round(min(ratio for audit in audits for _, ratio in audit.contrasts), 2),
        "requests": max(len(audit.requests) for audit in audits),
        "scripts": max(audit.scripts for audit in audits),
        "faults": sorted({fault for audit in audits for fault in audit.faults}),
    }


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(description="Weight of pages, and what checkers find.")
    parser.add_argument("--models", nargs="+", default=list(_MODELS), metavar="NAME", help="of the zoo")
    add_json_option(parser)
    given = parser.parse_args()
    result = heading("tests.page_figures", SCHEMA)
    rows: list[dict[str, Any]] = []
    for name in given.models:
        with tempfile.TemporaryDirectory(prefix="edgetlm-page-") as scratch:
            folder = Path(scratch)
            file, page = export(name, folder, "onnx"), folder / "page.html"
            bundle = folder / "bundle"
            sdk.deploy(file, report=page, bundle=bundle, threads=1, backend="tvm", progress=Silence())
            rows.append({"model": name} | figures_of(page, folder))
        print(rows[-1], flush=True)
    write_result(given.json, result | {"largest_bytes": LARGEST_PAGE_BYTES, "pages": rows})
    return 1 if any(one["faults"] or one["bytes"] > LARGEST_PAGE_BYTES for one in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
