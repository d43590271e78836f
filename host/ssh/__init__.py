"""A connection to a board over SSH, by the user's own SSH configuration, keys and known hosts."""

from __future__ import annotations

import logging

from host.ssh.connection import SshConnection
from host.ssh.output import Completed

__all__ = ["Completed", "SshConnection"]

# What paramiko logs reaches the user as an exception; without a handler Python would print it as well.
logging.getLogger("paramiko").addHandler(logging.NullHandler())
