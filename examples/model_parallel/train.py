"""A network that is split over two instances: each has one stage, and activations and gradients go between them.

Each stage keeps its own checkpoints. When the job starts again, all stages go on from the latest step that every one of
them has kept: a stop may have come between two stages.
"""

import argparse
import json
import math
import os
import re
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

BATCH, MICROBATCHES = 64, 4


def main() -> None:
    """Train this instance's stage."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--checkpoint-every", type=int, default=5)
    parser.add_argument("--seconds-per-step", type=float, default=0.0, help="so that there is time to watch")
    options = parser.parse_args()

    hosts = json.loads(os.environ["SM_HOSTS"])
    rank, stages = hosts.index(os.environ["SM_CURRENT_HOST"]), len(hosts)
    os.environ.setdefault("MASTER_ADDR", hosts[0])
    os.environ.setdefault("MASTER_PORT", "29500")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", os.environ["SM_NETWORK_INTERFACE_NAME"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=stages)

    model = stage(rank, stages)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    kept = Checkpoints(Path(os.environ.get("SM_CHECKPOINT_DIR", "/opt/ml/checkpoints")), rank, stages)
    done = kept.restore(model, optimizer)
    if rank == 0:
        print(f"resuming at step {done}" if done else "starting from the beginning", flush=True)

    pipeline = PipelineStage(model, rank, stages, torch.device("cpu"))
    schedule = ScheduleGPipe(pipeline, MICROBATCHES, loss_fn=nn.functional.mse_loss)
    for step in range(done + 1, options.steps + 1):
        optimizer.zero_grad()
        inputs, wanted = batch(step)
        losses: list[Tensor] = []
        if rank == 0:
            schedule.step(inputs)
        else:
            schedule.step(target=wanted, losses=losses)
        optimizer.step()
        if losses:
            print(f"step {step}: loss {torch.stack(losses).mean().item():.6f}", flush=True)
        if step % options.checkpoint_every == 0:
            kept.save(step, model, optimizer)
        time.sleep(options.seconds_per_step)

    torch.save(model.state_dict(), Path(os.environ.get("SM_MODEL_DIR", "/opt/ml/model"), f"stage-{rank}.pt"))
    dist.destroy_process_group()


def stage(rank: int, stages: int) -> nn.Module:
    """Return the layers of one of two stages. A large model has too many layers for the memory of one GPU."""
    if stages != 2:
        raise SystemExit(f"this network has two stages, not {stages}: run it on two instances")
    torch.manual_seed(rank)
    first = nn.Sequential(nn.Linear(1, 32), nn.Tanh())
    last = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    return first if rank == 0 else last


def batch(step: int) -> tuple[Tensor, Tensor]:
    """Points of a curve; the same for a step whichever attempt comes to it, on every instance."""
    points = torch.rand(BATCH, 1, generator=torch.Generator().manual_seed(step)) * 2 - 1
    return points, torch.sin(math.pi * points)


class Checkpoints:
    """What one stage keeps; the folder has the files of all stages when the job starts."""

    def __init__(self, folder: Path, rank: int, stages: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._rank, self._stages = folder, rank, stages

    def save(self, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Keep a step; the file is whole or not there at all, whenever the job is stopped."""
        file = self._file(step, self._rank)
        unfinished = file.with_suffix(".new")
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, unfinished)
        unfinished.replace(file)

    def restore(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
        """Load the latest step that all stages have, which they agree on; 0 is the beginning."""
        common = set.intersection(*(self._steps(rank) for rank in range(self._stages)))
        latest = torch.tensor(max(common, default=0))
        dist.all_reduce(latest, dist.ReduceOp.MIN)
        step = int(latest)
        if step:
            state = torch.load(self._file(step, self._rank), weights_only=True)
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
        return step

    def _file(self, step: int, rank: int) -> Path:
        return self._folder / f"step-{step}-stage-{rank}.pt"

    def _steps(self, rank: int) -> set[int]:
        names = (re.fullmatch(rf"step-(\d+)-stage-{rank}\.pt", file.name) for file in self._folder.iterdir())
        return {int(name[1]) for name in names if name}


if __name__ == "__main__":
    main()
