"""Arrays and modules, which callers give as objects and commands as files."""
