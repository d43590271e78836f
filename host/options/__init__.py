"""The options of a compilation, of tuning and of a deployment.

Each field says how a command line offers it: flags and their help are made from here, and the Python
functions take the same names. So an option is written once.
"""

from __future__ import annotations

from host.options.backends import BACKENDS, Backend
from host.options.compile import CompileOptions, Number, Size
from host.options.deploy import SINGLE_PRECISION, DeployOptions, settings_of, text_of

__all__ = [
    "BACKENDS",
    "SINGLE_PRECISION",
    "Backend",
    "CompileOptions",
    "DeployOptions",
    "Number",
    "Size",
    "settings_of",
    "text_of",
]
