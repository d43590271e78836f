"""The command line, one file a group of commands."""

# The exit code after Ctrl-C or a request to terminate.
INTERRUPTED = 130
