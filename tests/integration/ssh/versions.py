"""An agent of another version."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from pathlib import Path

from host.payload import agent_archive
from host.payload.agent import AgentArchive


def other_version(folder: Path) -> AgentArchive:
    """Our agent with one line more; `folder` is for its files."""
    ours, tree = agent_archive(), folder / "other"
    with tarfile.open(fileobj=io.BytesIO(ours.content)) as tar:
        tar.extractall(tree, filter="data")
    with (tree / "device_agent" / "__init__.py").open("a") as file:
        file.write("# another version\n")
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        tar.add(tree / "device_agent", "device_agent")
    digest = hashlib.sha256(plain.getvalue()).hexdigest()
    return AgentArchive(gzip.compress(plain.getvalue()), digest, ours.names)
