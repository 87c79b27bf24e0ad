"""Programs in other languages: the .proto files and the examples, run by their own tools where there are any.

The tools fetch what they need from their registries; that is tried three times, since a registry may be busy.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from logbroker import errors
from logbroker.embedded_broker import EmbeddedBroker
from logbroker.v1 import admin_pb2, common_pb2, groups_pb2, log_pb2, queues_pb2
from tests.docs.markdown import read

ROOT = Path(__file__).resolve().parents[2]
BUF = "@bufbuild/buf@1.75.0"
TRIES = 3


def run(command: str, folder: Path, tries: int = 1) -> str:
    """Run a command as a shell does and return its standard output."""
    done = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0 and tries > 1:
        return run(command, folder, tries - 1)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def needs(*tools: str) -> None:
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"not installed here: {', '.join(missing)}")


@pytest.mark.prove
@pytest.mark.parametrize(
    ("folder_name", "tools", "installs"), [("go", ("go",), "go install"), ("node", ("node", "npm"), "npm install")]
)
def test_the_example_works_off_its_orders_in_order_by_the_commands_of_its_readme(
    folder_name: str, tools: tuple[str, ...], installs: str, tmp_path: Path, logbroker_broker: EmbeddedBroker
) -> None:
    needs(*tools)
    for name in ("examples", "proto"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("node_modules", "build"))
    blocks = (block.text.splitlines() for block in read(ROOT / "examples" / "README.md").blocks)
    [(enter, *commands)] = (lines for lines in blocks if lines[0] == f"cd examples/{folder_name}")
    folder = tmp_path / enter.removeprefix("cd ")
    shown = ""
    for command in commands:
        command = command.replace("127.0.0.1:9192", logbroker_broker.address).replace(" python ", f" {sys.executable} ")
        shown = run(command, folder, TRIES if installs in command else 1)
    orders = [line.split(": ") for line in shown.splitlines()]
    assert Counter(key for key, _ in orders) == {"customer-0": 3, "customer-1": 2}
    for customer, numbers in (("customer-0", "024"), ("customer-1", "13")):
        assert [order for key, order in orders if key == customer] == [f"order {number}" for number in numbers]


def test_the_proto_files_keep_the_rules_of_buf() -> None:
    needs("npx")
    run(f"npx --yes --package {BUF} buf lint", ROOT, TRIES)


@pytest.mark.parametrize("module", [admin_pb2, common_pb2, groups_pb2, log_pb2, queues_pb2])
def test_each_proto_file_names_the_packages_of_other_languages(module: object) -> None:
    options = module.DESCRIPTOR.GetOptions()  # type: ignore[attr-defined]
    assert options.go_package == "logbroker/v1;logbrokerv1"
    assert (options.java_package, options.java_multiple_files) == ("logbroker.v1", True)
    assert options.csharp_namespace == "Logbroker.V1"


def test_the_proto_files_name_exactly_the_errors_that_are_worth_a_retry() -> None:
    text = (ROOT / "proto" / "logbroker" / "v1" / "common.proto").read_text(encoding="utf-8")
    listed = {reason for names in re.findall(r"(?m)^//   ([A-Z_, ]+)  ", text) for reason in names.strip().split(", ")}
    assert listed == {each.reason for each in vars(errors).values() if getattr(each, "retriable", False)}
