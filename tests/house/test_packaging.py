"""The wheel, from a checkout and from an sdist: what a user gets, tried without the checkout in sight."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("logbroker", "storage", "consumer_groups", "tools")


@pytest.fixture(scope="module", params=["checkout", "sdist"])
def wheel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy, so that no build product lands in the checkout."""
    source = tmp_path_factory.mktemp("source")
    for name in (
        "pyproject.toml",
        "MANIFEST.in",
        "README.md",
        "CHANGELOG.md",
        "LICENSE",
        "proto",
        "examples",
        "docs",
        *FOLDERS,
    ):
        subprocess.run(["cp", "-a", str(ROOT / name), str(source / name)], check=True)
    if request.param == "sdist":
        build = "from setuptools import build_meta as b; print(b.build_sdist('dist'))"
        done = subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True, text=True)
        name = done.stdout.splitlines()[-1]
        with tarfile.open(source / "dist" / name) as archive:
            archive.extractall(source / "unpacked", filter="data")
        source = source / "unpacked" / name.removesuffix(".tar.gz")
        assert (source / "proto/logbroker/v1/log.proto").is_file()
        assert (source / "docs" / "concepts.svg").is_file()
        assert {"main.go", "orders.js"} <= {path.name for path in (source / "examples").rglob("*")}
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(out), str(source)], check=True, capture_output=True)
    (built,) = out.glob("*.whl")
    return built


@pytest.mark.prove(keep=1)
def test_the_wheel_holds_all_modules_and_data_and_nothing_at_the_top_but_logbroker(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"logbroker"}
    wanted = {"logbroker/py.typed", "logbroker/cli/demo_data/flights-2013-01.csv.gz", "logbroker/v1/log_pb2.pyi"}
    wanted |= {next(name for name in names if name.endswith(".dist-info/licenses/proto/kafka/NOTICE"))}
    wanted |= {f"logbroker/v1/{path.name}" for path in (ROOT / "proto/logbroker/v1").glob("*.proto")}
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            relative = path.relative_to(ROOT).as_posix()
            wanted.add(relative if folder == "logbroker" else f"logbroker/{relative}")
    assert wanted - names == set()


@pytest.mark.prove(keep=1)
def test_the_installed_package_runs_beside_a_users_own_storage_and_tools(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    work = tmp_path / "work"
    work.mkdir()
    for name in ("storage", "tools"):
        (work / f"{name}.py").write_text("raise SystemExit('the wrong module')\n", encoding="utf-8")
    program = f"import sys; sys.path.insert(0, {str(site)!r}); import logbroker.cli.main as m, logbroker.storage as s; "
    program += "print(s.__file__); sys.exit(m.run(['--help']))"
    result = subprocess.run([sys.executable, "-c", program], cwd=work, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(str(site))
    assert "serve" in result.stdout
