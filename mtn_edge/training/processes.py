"""The processes of a run: one, several on this machine, or those that torchrun or SLURM has started on several.

Lightning starts those of this machine by running the same command again, and joins all of them; the first one does
everything that leaves a trace. The others end without a word, and never outlive it.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch.strategies.launchers.subprocess_script import _SubprocessScriptLauncher

from mtn_edge.errors import InterruptedRunError, UserError


@dataclass(frozen=True)
class Processes:
    """Who takes part in a run, seen from one of them."""

    devices: int = 1
    """Processes on each machine."""
    nodes: int = 1
    """Machines."""
    rank: int = 0
    """Number of this process; 0 is the first one."""
    external: bool = False
    """Whether something else than this command has started them."""

    @property
    def world(self) -> int:
        """All of them."""
        return self.devices * self.nodes

    def trainer_options(self, accelerator: str) -> dict[str, Any]:
        """What Lightning's trainer has to know."""
        return {
            "accelerator": accelerator,
            "devices": self.devices,
            "num_nodes": self.nodes,
            "strategy": "ddp" if self.world > 1 else "auto",
            # A single process inside a SLURM job is a single process.
            "plugins": None if self.external else [LightningEnvironment()],
        }

    @contextmanager
    def joined(self, trainer: pl.Trainer) -> Iterator[None]:
        """Around the fit: whatever ends the first process ends the others, and in these it ends without a word.

        Raises:
            SystemExit: in all processes but the first one, when the fit is over.
        """
        if self.rank == 0:
            try:
                yield
            except BaseException:
                if isinstance(trainer.strategy.launcher, _SubprocessScriptLauncher):
                    trainer.strategy.launcher.kill(signal.SIGKILL)
                raise
            return
        if not self.external:
            threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
        try:
            yield
        except InterruptedRunError:
            pass
        except UserError as error:
            if error.code != "diverged":  # the first process finds that out too, and says so
                raise
        raise SystemExit(0)


def find_processes(devices: int, environment: Mapping[str, str] = os.environ) -> Processes:
    """The processes that the option `--devices` and the environment ask for.

    Raises:
        UserError: `devices` is not what torchrun or SLURM has started.
    """
    if devices < 1:
        raise UserError(f"`--devices {devices}` was given, and at least 1 is needed", code="devices", hint="raise it")
    if "TORCHELASTIC_RUN_ID" in environment:
        local, world = int(environment["LOCAL_WORLD_SIZE"]), int(environment["WORLD_SIZE"])
        found = Processes(local, world // local, int(environment["RANK"]), external=True)
    elif int(environment.get("SLURM_STEP_NUM_TASKS", "1")) > 1:
        nodes = int(environment["SLURM_STEP_NUM_NODES"])
        tasks = int(environment["SLURM_STEP_NUM_TASKS"])
        found = Processes(tasks // nodes, nodes, int(environment["SLURM_PROCID"]), external=True)
    else:
        return Processes(devices, rank=int(environment.get("LOCAL_RANK", "0")) if devices > 1 else 0)
    if devices not in (1, found.devices):
        raise UserError(
            f"`--devices {devices}` was given, and {found.devices} processes were started on this machine",
            code="devices",
            hint="leave the option out",
        )
    return found


def sum_over_processes(values: list[float], device: torch.device) -> list[float]:
    """The sum of each number over all processes."""
    tensor = torch.tensor(values, dtype=torch.float64, device=device)
    torch.distributed.all_reduce(tensor)
    return tensor.tolist()


def _end_with(parent: int) -> None:
    """Ends this process when its parent has ended, however that came."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
