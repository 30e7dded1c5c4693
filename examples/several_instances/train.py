"""Data-parallel training on any number of processes: the same result on 2, 4 or 8 instances.

smq submit --folder examples/several_instances -n 8,4,2 --launcher torchrun --checkpoint -- python train.py
"""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS, GLOBAL_BATCH = 40, 64
gpus = torch.cuda.is_available()
dist.init_process_group("nccl" if gpus else "gloo")  # rank and address come from torchrun
rank, processes = dist.get_rank(), dist.get_world_size()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpus else torch.device("cpu")

torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(1, 1).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kept = Path(os.environ.get("SM_CHECKPOINT_DIR", "checkpoints"), "step.pt")
done = 0
if kept.exists():
    state = torch.load(kept, map_location=device, weights_only=True)
    done = state["step"]
    model.load_state_dict(state["model"])

for step in range(done + 1, STEPS + 1):
    batch = torch.rand(GLOBAL_BATCH, 1, generator=torch.Generator().manual_seed(step))
    inputs = batch[rank::processes].to(device)  # this process's part
    loss = torch.nn.functional.mse_loss(model(inputs), 3 * inputs + 1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0 and step % 10 == 0:
        kept.parent.mkdir(exist_ok=True)
        torch.save({"step": step, "model": model.state_dict()}, kept.with_suffix(".new"))
        kept.with_suffix(".new").replace(kept)
        print(f"step {step} of {STEPS} on {processes} processes: loss {loss.item():.4f}", flush=True)
dist.destroy_process_group()
