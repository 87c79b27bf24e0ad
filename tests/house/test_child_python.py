"""Processes that this package starts: what they load, and from where."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from logbroker.child_python import child_command

ROOT = Path(__file__).parents[2]

SHADOWED = ("queue", "storage", "tools", "uvloop", "logbroker", "typing")
"""Names of modules that a user may have, too: of Python, of this project, and of what it imports."""

USES_A_BROKER = """
import os, sys
os.chdir(sys.argv[1])
import logbroker
from logbroker.client.sync import Admin
with logbroker.embedded() as broker, Admin(broker.address) as admin:
    print(admin.create_topic("t").name, flush=True)
"""

STARTS_A_PROBE = """
import os, queue, subprocess, sys
sys.path.insert(0, sys.argv[1])
import logbroker
from logbroker.child_python import child_command
os.chdir("/")
print(logbroker.__version__, flush=True)
subprocess.run(child_command("logbroker.probe", "argument"), check=True)
"""

PROBE = """
import sys
import logbroker, queue, vendored
print(logbroker.__version__, hasattr(queue, "SimpleQueue"), sys.argv[1:])
"""


@pytest.fixture
def shadowed(tmp_path: Path) -> Path:
    """A directory with modules that nothing may import."""
    directory = tmp_path / "shadowed"
    directory.mkdir()
    for name in SHADOWED:
        (directory / f"{name}.py").write_text(f"raise ImportError('the {name} of the current directory')")
    return directory


def output(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=cwd, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("flag", ["-P", "-I"])
def test_an_embedded_broker_imports_nothing_of_the_current_directory(shadowed: Path, flag: str) -> None:
    assert output(sys.executable, flag, "-c", USES_A_BROKER, str(shadowed)) == "t\n"


def test_the_fixtures_import_nothing_of_the_current_directory(shadowed: Path, tmp_path: Path) -> None:
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "test_it.py").write_text("def test_it(logbroker_broker):\n    assert logbroker_broker.pid\n")
    options = ["--import-mode=importlib", "-q", "-p", "no:cacheprovider", f"--rootdir={tests}", str(tests)]
    assert "1 passed" in output(sys.executable, "-P", "-m", "pytest", *options, cwd=shadowed)


@pytest.mark.parametrize(
    "module", ["logbroker.tools.bench.groups.group_child", "logbroker.tools.bench.queues.queue_child"]
)
def test_a_child_of_a_benchmark_imports_nothing_of_the_current_directory(shadowed: Path, module: str) -> None:
    done = subprocess.run(child_command(module, "none"), capture_output=True, text=True, cwd=shadowed, check=False)
    assert "of the current directory" not in done.stderr
    assert "ModuleNotFoundError" not in done.stderr


@pytest.mark.parametrize("kind", ["directory", "zip"])
def test_a_child_runs_the_package_of_its_parent(kind: str, tmp_path: Path) -> None:
    """Though another version is installed, and only the `sys.path` of the parent has it, as in a checkout that is run
    from its root. Python's own modules still come first."""
    place = tmp_path / "place"
    shutil.copytree(ROOT / "logbroker", place / "logbroker", ignore=shutil.ignore_patterns("__pycache__"))
    start = place / "logbroker" / "__init__.py"
    start.write_text(start.read_text().replace('__version__ = "', '__version__ = "another-'))
    (place / "logbroker" / "probe.py").write_text(PROBE)
    (place / "vendored.py").touch()
    (place / "queue.py").write_text("raise ImportError('not the queue of Python')")
    if kind == "zip":
        with zipfile.ZipFile(tmp_path / "app.zip", "w") as file:
            for path in place.rglob("*.py"):
                file.write(path, path.relative_to(place))
    found_at = "place" if kind == "directory" else "app.zip"
    version, probe = output(sys.executable, "-P", "-c", STARTS_A_PROBE, found_at, cwd=tmp_path).splitlines()
    assert version.startswith("another-")
    assert probe == f"{version} True ['argument']"
