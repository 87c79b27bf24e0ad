"""The command that runs a module of this package in a Python process of its own, such as the broker of `embedded`.

`python -m` would look for modules in the current directory first: a `queue.py` of the user there would be executed in
the place of Python's own. So the child process does not look in the current directory. It also gets the parent's
options -E and -s. It loads the package from the directory from which the parent loaded it. If the child's `sys.path`
does not have this directory, it is added at the end, so that it hides no other module.
"""

from __future__ import annotations

import os
import sys
from typing import Final

_LOCATION: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
"""The directory or zip file of the package; absolute, because the program may change its working directory."""

_PROGRAM: Final = """\
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from runpy import run_module
location, module = sys.argv[1:3]
del sys.argv[1:3]
if location not in sys.path:
    sys.path.append(location)
spec = PathFinder.find_spec("logbroker", [location])
if spec is not None and spec.loader is not None:
    sys.modules["logbroker"] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules["logbroker"])
run_module(module, run_name="__main__", alter_sys=True)
"""


def child_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module, such as "logbroker", with these arguments."""
    flags = ["-P"]
    if sys.flags.ignore_environment:
        flags.append("-E")
    if sys.flags.no_user_site:
        flags.append("-s")
    return [sys.executable, *flags, "-c", _PROGRAM, _LOCATION, module, *arguments]
