"""The environment that ranks get: torchrun's, or none of its own."""

from __future__ import annotations

import functools
import os
import sys
import uuid
from collections.abc import Callable

from lablib.engine import cores, wire
from lablib.engine.options import Options
from lablib.errors import UsageError

Variables = Callable[[int, int, int, str], dict[str, str]]


def of_each_rank(options: Options, *, port: int, variables: Variables, group: bool) -> list[wire.Surroundings]:
    """Return what each rank finds around it: this process's environment, folder and import path, and its own variables.

    Args:
        options: the options of the call.
        port: the rendezvous port.
        variables: `torchruns` or `none_of_its_own`.
        group: make the default process group.
    """
    threads = max(1, _cores() // options.world_size)
    shared = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    shared["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME") or _loopback_interface()
    folder = _folder()
    import_path = [path or folder for path in sys.path]
    job = uuid.uuid4().hex
    found = []
    for rank in range(options.world_size):
        device = options.choice.device_of(rank, gpus=options.gpus)
        own = variables(rank, options.world_size, port, job)
        found.append(
            wire.Surroundings(
                environment={**shared, **own, "LABLIB_DEVICE": device},
                folder=folder,
                import_path=import_path,
                threads=threads,
                backend=options.choice.backend if group else None,
                device=device,
                store=variables is torchruns,
            )
        )
    return found


def torchruns(rank: int, world_size: int, port: int, job: str) -> dict[str, str]:
    """Return what torchrun sets on one host (torch/distributed/elastic/agent/server/local_elastic_agent.py)."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "GROUP_RANK": "0",
        "ROLE_RANK": str(rank),
        "ROLE_NAME": "default",
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "GROUP_WORLD_SIZE": "1",
        "ROLE_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": job,
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # plain init_process_group() joins the store that rank 0 serves
    }


def none_of_its_own(rank: int, world_size: int, port: int, job: str) -> dict[str, str]:
    """Return what torch.multiprocessing.spawn sets: nothing."""
    return {}


_cores = functools.cache(cores.usable_cores)


def _folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise UsageError(
            "this notebook's folder is gone, and the ranks start in it; os.chdir(…) to one that exists"
        ) from None


def _loopback_interface() -> str:
    return "lo0" if sys.platform == "darwin" else "lo"
