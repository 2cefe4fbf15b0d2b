"""Describe the machine and the versions that a measurement belongs to."""

import importlib.metadata
import os
import platform
from dataclasses import dataclass

PACKAGES = ("torch", "lablib", "accelerate", "ipyparallel", "cloudpickle", "psutil")


@dataclass(frozen=True)
class Machine:
    """Hold what a reader needs to judge a measurement; `load` is the 1, 5 and 15 minute average."""

    system: str
    cpus: int
    usable_cpus: int
    python: str
    packages: dict[str, str]
    load_before: tuple[float, ...]
    load_after: tuple[float, ...]


def load_average() -> tuple[float, ...]:
    """Return the load average, or nothing where the system has none."""
    return tuple(round(load, 2) for load in os.getloadavg()) if hasattr(os, "getloadavg") else ()


def describe(*, load_before: tuple[float, ...]) -> Machine:
    """Describe this machine after a measurement that began under `load_before`."""
    cpus = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cpus
    return Machine(
        system=platform.platform(terse=True),
        cpus=cpus,
        usable_cpus=usable,
        python=platform.python_version(),
        packages={name: _version(name) for name in PACKAGES},
        load_before=load_before,
        load_after=load_average(),
    )


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
