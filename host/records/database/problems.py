"""Errors of a database in one line without secrets, and the name of a store."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import sqlalchemy as sql
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    IntegrityError,
    InterfaceError,
    NoSuchModuleError,
    OperationalError,
    SQLAlchemyError,
)

from device_agent.contract.text import printable
from host.errors import EdgeError

# Seconds that a writer waits for another process to finish.
BUSY_S = 60
POSTGRESQL = "postgresql+psycopg://me@host/records"
_ASK_OWNER = "docs/records.md says what a writer needs, ask the owner of the database"
# Words of SQLite and of libpq, which have no codes for these.
_WORDS = (
    ("disk is full", "no space left: free some and run again"),
    ("readonly database", "it may only be read: make it writable, or take another with --records"),
    ("database is locked", f"another process has kept it for {BUSY_S} s: run again when that is done"),
    ("unable to open", "its folder is missing or closed to you: take another with --records"),
    ("malformed", "the file is damaged: restore it, or take another with --records"),
    ("not a database", "it is no SQLite database: take another with --records"),
    ("too big", "it holds a row that is larger than any record: take another with --records"),
    ("decode", "it holds text that is none: take another with --records"),
    ("password authentication failed", "the server refuses this user's password: correct it in ~/.pgpass"),
    ("no password supplied", "the server wants a password: put it into ~/.pgpass"),
    ("no pg_hba.conf entry", "the server takes no such user from this machine: ask its administrator"),
    ("Peer authentication failed", "the server knows you as another user: name yours, as in " + POSTGRESQL),
    ("does not exist", "the server has no such database or user: correct the URL"),
    ("could not translate host name", "no such host: correct the URL"),
    ("failed to resolve host", "no such host: correct the URL"),
    ("certificate", "the server's certificate is not the one expected: see sslrootcert in the URL"),
    ("starting up", "the server is starting: run again in a moment"),
    ("shutting down", "the server is shutting down: run again when it is back"),
    ("too many clients", "the server has too many clients: run again later"),
    ("Connection refused", "the server does not answer: is it on, and are host and port right?"),
    ("No such file or directory", "the server does not answer: is it on, and are host and port right?"),
    ("timeout expired", "the server does not answer: is it on, and are host and port right?"),
    ("closed the connection unexpectedly", "the server went away: run again when it is back"),
)
# https://www.postgresql.org/docs/current/errcodes-appendix.html
_CODES = {
    "25006": "it may only be read: " + _ASK_OWNER,
    "28000": "the server takes no such user: correct the URL",
    "28P01": "the server refuses this user's password: correct it in ~/.pgpass",
    "40001": "another process was in between: run again",
    "40P01": "another process was in between: run again",
    "3D000": "the server has no such database: correct the URL",
    "42501": "your role may not do this: " + _ASK_OWNER,
    "53100": "the server has no space left: free some and run again",
    "53300": "the server has too many clients: run again later",
    "55P03": f"another process has kept it for {BUSY_S} s: run again when that is done",
    "57P01": "the server is shutting down: run again when it is back",
    "57P03": "the server is starting: run again in a moment",
}
# The server is away or shuts down, or another transaction was faster: the next try may succeed.
_AWAY_CODES = frozenset(("57P01", "57P02", "57P03", "53300", "40001", "40P01"))
_AWAY_CLASS = "08"

Problem = SQLAlchemyError | UnicodeDecodeError | ImportError


class ServerAway(EdgeError):
    """A server that does not answer at the moment; the same may succeed when it is back."""


def problem(error: Problem, url: str | Path, before: str) -> EdgeError:
    """The error of a database as one of ours.

    Args:
        error: of SQLAlchemy or of its driver.
        url: of the database; nothing of it that is secret is in the message.
        before: the beginning of the message.
    """
    kind = ServerAway if is_away(error) else EdgeError
    return kind(f"{before}: {reason(error, url)}")


def is_away(error: BaseException) -> bool:
    """Whether a server went away or is not there yet."""
    if not isinstance(error, DBAPIError):
        return False
    code = _code(error)
    if code:
        return code in _AWAY_CODES or code.startswith(_AWAY_CLASS)
    if isinstance(error.orig, sqlite3.Error):
        return False
    network = isinstance(error, OperationalError | InterfaceError)
    return error.connection_invalidated or (network and not _is_refusal(error))


def _is_refusal(error: DBAPIError) -> bool:
    """Whether the server answered a connection, with words alone, and would answer the same again."""
    text = str(error.orig)
    asked = ("authentication failed", "no password supplied", "pg_hba.conf", "does not exist", "certificate")
    return any(sign in text for sign in asked)


def _code(error: BaseException) -> str:
    """The SQLSTATE that the server gave, "" without one."""
    code = getattr(getattr(error, "orig", None), "sqlstate", None)
    return code if isinstance(code, str) else ""


def reason(error: Problem, url: str | Path) -> str:
    """One line of what went wrong and what to do, without what is secret in the URL."""
    if isinstance(error, UnicodeDecodeError):
        # SQLite's own words quote what the file holds, and Python takes no words that are not UTF-8.
        return "the file is damaged: restore it, or take another with --records"
    if isinstance(error, ImportError):
        return "the driver of PostgreSQL is missing: install it with pip install 'edgetlm[postgres]'"
    if isinstance(error, NoSuchModuleError):
        return f"records are kept in SQLite or PostgreSQL; name a file, or write {POSTGRESQL}"
    if isinstance(error, ArgumentError):
        return f"it is no URL of a database: write it as {POSTGRESQL}"
    if isinstance(error, IntegrityError):
        return "another process changed the same rows just now: run again"
    # Not what SQLAlchemy adds: the statement and its values, with any words.
    text = str(getattr(error, "orig", None) or error)
    code = _code(error)
    if code:
        return _CODES.get(code) or printable(_without_secrets(text, url), 200)
    for sign, meaning in _WORDS:
        if sign in text:
            return meaning
    return printable(_without_secrets(text, url), 200)


def store_name(url: str | Path) -> str:
    """The name of a store in messages and reports: the path of a file, or a URL without its secrets."""
    if not (isinstance(url, str) and "://" in url):
        return printable(url)
    try:
        parsed = url_of(url)
    except ArgumentError:
        return f"{printable(url.partition('://')[0], 40)}://..."
    if parsed.get_backend_name() == "sqlite":
        return printable(parsed.database or "sqlite://")
    # Options may hold a password as well.
    return printable(parsed.set(query={}).render_as_string(hide_password=True))


def url_of(text: str) -> sql.URL:
    """The URL in a text.

    Raises:
        ArgumentError: it is none.
    """
    try:
        return sql.make_url(text)
    except ValueError as error:  # a port that is no number
        raise ArgumentError(str(error)) from error


def _without_secrets(text: str, url: str | Path) -> str:
    """A driver's message, in which it may repeat what it was given."""
    try:
        parsed = url_of(str(url)) if "://" in str(url) else None
    except ArgumentError:
        return "it cannot be reached"
    secrets = [parsed.password or "", *map(str, parsed.query.values())] if parsed is not None else []
    for secret in filter(None, secrets):
        text = text.replace(secret, "***")
    return text
