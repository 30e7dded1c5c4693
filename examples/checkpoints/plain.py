"""Checkpoint and resume with plain PyTorch: a file for each step, which is whole or not there at all.

smq submit --folder examples/checkpoints --checkpoint --retries 2 -- python plain.py --steps 40
"""

import argparse
import os
import re
import time
from pathlib import Path

import torch
from torch import Tensor, nn

FOLDER = Path(os.environ.get("SM_CHECKPOINT_DIR", "checkpoints"))


def main() -> None:
    """Train, from the latest checkpoint if there is one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--checkpoint-every", type=int, default=5)
    parser.add_argument("--seconds-per-step", type=float, default=0.05, help="so that there is time to watch")
    options = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    done = restore(model, optimizer)
    print(f"resuming at step {done}" if done else "starting from the beginning", flush=True)
    for step in range(done + 1, options.steps + 1):
        inputs, wanted = batch(step)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), wanted)
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.6f}", flush=True)
        if step % options.checkpoint_every == 0:
            save(step, model, optimizer)
        time.sleep(options.seconds_per_step)
    torch.save(model.state_dict(), Path(os.environ.get("SM_MODEL_DIR", "."), "model.pt"))


def batch(step: int) -> tuple[Tensor, Tensor]:
    """Return points of a curve: the same for a step in every attempt."""
    points = torch.rand(64, 1, generator=torch.Generator().manual_seed(step)) * 2 - 1
    return points, torch.sin(3 * points)


def save(step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Save model and optimizer under a temporary name, which is not restored, and rename the file."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    temporary = FOLDER / f"step-{step}.pt.new"
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, temporary)
    temporary.replace(FOLDER / f"step-{step}.pt")


def restore(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load the highest step, and return it; 0 if there is none."""
    names = (re.fullmatch(r"step-(\d+)\.pt", file.name) for file in FOLDER.glob("step-*.pt"))
    step = max((int(name[1]) for name in names if name), default=0)
    if step:
        state = torch.load(FOLDER / f"step-{step}.pt", weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    return step


if __name__ == "__main__":
    main()
