"""Commands of a host about sessions."""

from __future__ import annotations

import os
import shutil
from typing import Callable, Dict, Optional

from device_agent.contract.fields import Fields
from device_agent.contract.limits import LIMITS
from device_agent.serve.client_modes import ClientPowerModes
from device_agent.serve.executor_process import SessionOptions
from device_agent.serve.reservation import Client
from device_agent.serve.sessions import Sessions
from device_agent.store.uploads import Uploads, check_file_name, place
from device_agent.wire.frames import Header

Command = Callable[[Fields, Client], Optional[Header]]


class SessionCommands:
    """The commands `session.*`.

    Args:
        sessions: of the daemon.
        options: reads the options of a new session.
        uploads: with the files that are placed in sessions.
        modes: restored at the end of the session for which they were set.
        present: makes a function that returns whether a client is still connected.
    """

    def __init__(
        self,
        sessions: Sessions,
        options: Callable[[Fields], SessionOptions],
        uploads: Uploads,
        modes: ClientPowerModes,
        present: Callable[[Client], Callable[[], bool]],
    ) -> None:
        self._sessions = sessions
        self._options = options
        self._uploads = uploads
        self._modes = modes
        self._present = present

    def all(self) -> Dict[str, Command]:
        """The functions that answer the commands `session.*`, by the names of the commands."""
        return {
            "session.open": self._open,
            "session.attach": lambda f, c: self._sessions.attach(f.name("session")),
            "session.status": self._status,
            "session.pause": lambda f, c: self._sessions.pause(f.name("session"), True),
            "session.resume": lambda f, c: self._sessions.pause(f.name("session"), False),
            "session.close": self._close,
            "session.place": self._place,
        }

    def _open(self, fields: Fields, client: Client) -> Header:
        options, wait_s = self._options(fields), fields.seconds("wait_s", 0.0)
        return self._sessions.open(client, options, wait_s, self._present(client))

    def _close(self, fields: Fields, client: Client) -> None:
        name = fields.name("session")
        self._sessions.close(name)
        self._modes.session_ended(name)

    def _status(self, fields: Fields, client: Client) -> Header:
        return self._sessions.status(fields.name("session"), fields.seconds("wait_s", 0.0))

    def _place(self, fields: Fields, client: Client) -> Header:
        """Places uploaded files in a new folder of a session, under their names."""
        session = self._sessions.get(fields.name("session"))
        # All of the request is looked at before anything is changed.
        folder = os.path.join(session.workdir, "files", check_file_name(fields.name("folder")))
        files = fields.text_map("files", LIMITS.wire.files)
        sources = {check_file_name(name): self._uploads.path(digest) for name, digest in files.items()}
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        for name, source in sources.items():
            place(source, os.path.join(folder, name))
        return {"path": folder}
