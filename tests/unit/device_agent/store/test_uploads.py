"""Uploads by content."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import threading
from pathlib import Path

import pytest

from device_agent.errors import AgentError, ClosedError
from device_agent.store import uploads as uploads_module
from device_agent.store.uploads import Uploads


def digest_of(data):
    return hashlib.sha256(data).hexdigest()


def send(uploads, data, digest=None, size=None):
    """Uploads `data` through a socket; returns what was left unread."""
    left, right = socket.socketpair()
    thread = threading.Thread(target=lambda: (left.sendall(data + b"next"), left.close()))
    thread.start()
    with right:
        try:
            uploads.receive(right, digest or digest_of(data), len(data) if size is None else size)
        finally:
            rest = b"".join(iter(lambda: right.recv(1 << 16), b""))
            thread.join()
    return rest


def test_an_upload_is_kept_under_its_hash(tmp_path):
    uploads = Uploads(str(tmp_path))
    data = os.urandom(3 << 20)
    assert not uploads.has(digest_of(data))
    assert send(uploads, data) == b"next"
    assert uploads.has(digest_of(data))
    assert Path(uploads.path(digest_of(data))).read_bytes() == data


def test_another_content_is_refused_and_the_connection_stays_usable(tmp_path):
    uploads = Uploads(str(tmp_path))
    left, right = socket.socketpair()
    with left, right:
        left.sendall(b"wrongnext")
        with pytest.raises(AgentError, match="another content"):
            uploads.receive(right, digest_of(b"right"), 5)
        assert right.recv(10) == b"next"
    assert list(tmp_path.iterdir()) == []


def test_a_truncated_upload_leaves_nothing(tmp_path):
    uploads = Uploads(str(tmp_path))
    with pytest.raises(ClosedError, match="ended 96 bytes early"):
        send(uploads, b"", digest_of(b"x"), size=100)
    assert list(tmp_path.iterdir()) == []


def test_more_than_is_free_is_refused_at_once(tmp_path, monkeypatch):
    uploads = Uploads(str(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 3})())
    with pytest.raises(AgentError, match="4 bytes are sent, 3 are free") as caught:
        send(uploads, b"data")
    assert caught.value.kind == "device_full"
    assert list(tmp_path.iterdir()) == []


def test_least_recently_used_uploads_go_first(tmp_path):
    uploads = Uploads(str(tmp_path), keep_bytes=250)
    contents = [bytes([index]) * 100 for index in range(3)]
    for index, data in enumerate(contents):
        send(uploads, data)
        os.utime(uploads.path(digest_of(data)), (index, index))
    uploads.prune()
    assert [uploads.has(digest_of(data)) for data in contents] == [False, True, True]


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "A" * 64, "0" * 63])
def test_only_hashes_are_names(tmp_path, name):
    with pytest.raises(AgentError, match="is no SHA-256"):
        Uploads(str(tmp_path)).path(name)


def test_a_file_is_copied_where_it_cannot_be_linked(tmp_path, monkeypatch):
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_bytes(b"content")

    def refuse(*_):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    uploads_module.place(str(source), str(target))
    assert target.read_bytes() == b"content"


def test_uploads_that_end_while_old_files_are_looked_for_are_no_error(tmp_path, monkeypatch):
    """Another connection's upload may be listed and gone before it is looked at."""
    uploads = Uploads(str(tmp_path), keep_bytes=10)
    names = ["a" * 64 + ".0.part", digest_of(b"old"), digest_of(b"older")]
    for name in names:
        (tmp_path / name).write_bytes(b"123456")
    real = os.scandir

    def scandir(folder):
        entries = list(real(folder))
        (tmp_path / names[0]).unlink()
        (tmp_path / names[1]).unlink()
        return entries

    monkeypatch.setattr(os, "scandir", scandir)
    uploads.prune(coming=5)
    assert [path.name for path in tmp_path.iterdir()] == []
