"""Checks the making of releases: a version's notes, the workflows, and the files for Docker."""

import importlib.machinery
import importlib.util
import pathlib
import re
import sys
import tomllib

import yaml

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]

CHANGELOG = """# Changelog

## Unreleased

### Added

- A.

## 0.2.0 - 2026-01-02

- B [link](#b).

## 0.1.0

- C.
"""


def load(path):
    loader = importlib.machinery.SourceFileLoader("release_notes", str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("release_notes", loader))
    loader.exec_module(module)
    return module


def check_notes():
    notes = load(REPOSITORY / "deploy/release-notes")
    assert notes.notes(CHANGELOG, "0.2.0") == "- B [link](#b)."
    assert notes.notes(CHANGELOG, "0.1.0") == "- C."
    # A version is matched literally and as a whole.
    assert notes.notes(CHANGELOG, "0.2") is None and notes.notes(CHANGELOG, "0.2.00") is None
    after = notes.cut(CHANGELOG, "0.3.0", "2026-11-23")
    assert notes.notes(after, "0.3.0") == "### Added\n\n- A." and notes.notes(after, "0.2.0").startswith("- B")
    assert notes.cut(after, "0.4.0", "2026-11-24").count("## Unreleased\n") == 1
    for version, day in [("0.2.0", "2026-11-23"), ("0.3.0", "today")]:
        try:
            notes.cut(CHANGELOG, version, day)
        except ValueError:
            continue
        raise AssertionError(f"{version} {day} is accepted")
    changelog = (REPOSITORY / "CHANGELOG.md").read_text()
    # The section is empty right after a release.
    assert notes.notes(changelog, "Unreleased") is not None, "CHANGELOG.md has no heading for what comes"
    version = tomllib.loads((REPOSITORY / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    assert notes.notes(changelog, version), f"CHANGELOG.md says nothing of {version}"


def steps(workflow):
    return [step for job in workflow["jobs"].values() for step in job.get("steps", [])]


def check_workflows():
    found = sorted((REPOSITORY / ".github/workflows").glob("*.yml"))
    assert [path.name for path in found] == ["nightly.yml", "release.yml", "test.yml"], found
    for path in found:
        workflow = yaml.safe_load(path.read_text())
        # YAML 1.1 reads `on` as true.
        assert {"name", True, "permissions", "jobs"} <= workflow.keys(), f"{path.name}: {workflow.keys()}"
        for name, job in workflow["jobs"].items():
            assert "timeout-minutes" in job and "runs-on" in job, f"{path.name}: {name} has no end"
            for need in [job.get("needs", [])] if isinstance(job.get("needs"), str) else job.get("needs", []):
                assert need in workflow["jobs"], f"{path.name}: {name} needs {need}, which is no job"
        for step in steps(workflow):
            action = step.get("uses")
            assert action is None or re.fullmatch(r"[\w.-]+/[\w./-]+@v\d[\w.]*", action), f"{path.name}: {action} has no version"
            # Text from a pull request must not be part of a command.
            assert "${{ github.event" not in step.get("run", ""), f"{path.name}: {step}"
            for program in re.findall(r"(?<![\w/.-])((?:deploy|tests|\.ci)/[\w./-]+)", step.get("run", "")):
                assert (REPOSITORY / program).exists(), f"{path.name}: there is no {program}"


def check_docker():
    folder = REPOSITORY / "deploy/docker"
    lines = (folder / "Dockerfile").read_text().splitlines()
    final = lines[max(index for index, line in enumerate(lines) if line.startswith("FROM ")):]
    assert final[0] == "FROM scratch" and "USER 65532:65532" in final, "the image has a user with rights, or more than the program"
    assert not [line for line in final if line.startswith("RUN ")], "there is no shell in the image"
    service = yaml.safe_load((folder / "compose.yaml").read_text())["services"]["fanlight"]
    assert service["read_only"] and service["cap_drop"] == ["ALL"]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert (folder / service["build"]["context"] / service["build"]["dockerfile"]).resolve() == folder / "Dockerfile"


for check in [check_notes, check_workflows, check_docker]:
    check()
    print(f"{check.__name__.removeprefix('check_')}: ok")
sys.exit(0)
