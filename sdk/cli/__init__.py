"""The command line, one file a group of commands."""

import signal

# The exit code after Ctrl-C or a request to terminate.
INTERRUPTED = 130


def interruptions() -> tuple[signal.Signals, ...]:
    """The signals that interrupt a command.

    A terminal that is closed, or a login that breaks off, does: to end at once would leave half a bundle, and
    a session on the device. `nohup` has that signal ignored, and it stays so.
    """
    always = (signal.SIGINT, signal.SIGTERM)
    return always if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (*always, signal.SIGHUP)
