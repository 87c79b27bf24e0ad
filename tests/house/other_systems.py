"""Takes away what other systems lack, since none is at hand: put first into a process that is to run as on one of them.

Windows has neither fcntl nor uvloop, nor many calls and signals; macOS no fdatasync, no /proc, and in older versions
neither preadv nor pwritev. What they have and Linux lacks is not here: these tests show what must not be used.
"""

from __future__ import annotations

from typing import Final

WINDOWS: Final = """
import asyncio, concurrent.futures, importlib.abc, logging, mmap, multiprocessing, os, selectors, signal, socket
import ssl, subprocess, sys, tempfile
import click, google_crc32c, grpc, lmdb, rich.console

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in ("fcntl", "resource", "termios", "uvloop", "pwd", "grp"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

for name in ("fcntl", "resource", "termios", "uvloop"):
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Missing())
for name in (
    "fdatasync pread pwrite preadv pwritev O_CLOEXEC O_NONBLOCK O_DIRECTORY O_NOFOLLOW statvfs register_at_fork sysconf"
    " sysconf_names RWF_NOWAIT posix_fadvise posix_fallocate fork killpg getpgid setsid sched_getaffinity mkfifo"
).split():
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGHUP", "SIGKILL", "SIGUSR1", "SIGUSR2", "pthread_kill"):
    if hasattr(signal, name):
        delattr(signal, name)
sys.platform = "win32"
"""

MACOS: Final = """
import fcntl, os, pathlib

for name in (
    "fdatasync preadv pwritev RWF_NOWAIT RWF_DSYNC posix_fadvise posix_fallocate sched_getaffinity sched_setaffinity"
    " sync_file_range copy_file_range memfd_create eventfd splice"
).split():
    if hasattr(os, name):
        delattr(os, name)
fcntl.F_FULLFSYNC = 51  # Which Linux refuses, as some file systems do.

def there(path):
    if str(path).startswith("/proc"):
        raise FileNotFoundError(2, "No such file or directory", str(path))

def without_proc(function):
    def call(path, *arguments, **options):
        there(path)
        return function(path, *arguments, **options)
    return call

os.listdir = without_proc(os.listdir)
pathlib.Path.read_text = without_proc(pathlib.Path.read_text)
"""
