"""Checkpoint and resume with FSDP on two instances: each process saves its own part of the model.

    smq submit --folder examples/checkpoints -n 2 --launcher torchrun --checkpoint --retries 2 -- \
        python fsdp.py --steps 40

The processes use NCCL if there are GPUs, and Gloo otherwise, as on the local cloud.
"""

import argparse
import os
import re
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

FOLDER = Path(os.environ.get("SM_CHECKPOINT_DIR", "checkpoints"))


def main() -> None:
    """Train, from the latest checkpoint if there is one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--checkpoint-every", type=int, default=5)
    parser.add_argument("--seconds-per-step", type=float, default=0.05, help="so that there is time to watch")
    options = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    interface = os.environ.get("SM_NETWORK_INTERFACE_NAME")
    if interface:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1)).to(device)
    fully_shard(model, mesh=init_device_mesh(device, (dist.get_world_size(),)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    done = restore(model, optimizer, device)
    say(f"resuming at step {done}" if done else "starting from the beginning")
    for step in range(done + 1, options.steps + 1):
        inputs, wanted = (part.to(device) for part in batch(step, dist.get_rank()))
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), wanted)
        loss.backward()
        optimizer.step()
        dist.all_reduce(loss.detach())
        say(f"step {step}: loss {loss.item() / dist.get_world_size():.6f}")
        if step % options.checkpoint_every == 0:
            dcp.save(state_of(model, optimizer), checkpoint_id=FOLDER / f"step-{step}")  # writes .metadata last
        time.sleep(options.seconds_per_step)
    dist.destroy_process_group()


def say(text: str) -> None:
    """Print a line in the first process only."""
    if dist.get_rank() == 0:
        print(text, flush=True)


def batch(step: int, rank: int) -> tuple[Tensor, Tensor]:
    """Return points of a curve: the same for a step and a process in every attempt."""
    points = torch.rand(64, 1, generator=torch.Generator().manual_seed(2 * step + rank)) * 2 - 1
    return points, torch.sin(3 * points)


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return this process's part of the state."""
    model_state, optimizer_state = get_state_dict(model, optimizer)
    return {"model": model_state, "optimizer": optimizer_state}


def restore(model: nn.Module, optimizer: torch.optim.Optimizer, device: str) -> int:
    """Load the highest step that every process has completely, and return it; 0 if there is none."""
    found = [re.fullmatch(r"step-(\d+)", file.parent.name) for file in FOLDER.glob("step-*/.metadata")]
    steps = {int(name[1]) for name in found if name and has_all_parts(FOLDER / name[0])}
    latest = torch.tensor(max(steps, default=0), device=device)
    dist.all_reduce(latest, dist.ReduceOp.MIN)
    step = int(latest)
    if step:
        state = state_of(model, optimizer)
        dcp.load(state, checkpoint_id=FOLDER / f"step-{step}")
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    return step


def has_all_parts(folder: Path) -> bool:
    """Return whether the part of every process is there: instances upload their files independently."""
    return len(list(folder.glob("__*_0.distcp"))) == int(os.environ["WORLD_SIZE"])


if __name__ == "__main__":
    main()
