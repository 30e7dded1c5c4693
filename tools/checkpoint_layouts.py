"""Make small real checkpoints with each training library, and write the lists of their files for the client's tests.

The libraries are too large for the development environment. Run this program in an environment of its own:

    python3 -m venv /tmp/libraries
    /tmp/libraries/bin/pip install torch lightning 'transformers[torch]' orbax-checkpoint jax setuptools wheel
    DS_BUILD_OPS=0 /tmp/libraries/bin/pip install --no-build-isolation deepspeed
    /tmp/libraries/bin/python tools/checkpoint_layouts.py tests/client/checkpoint_layouts.json

To make only some entries again, add their names to the command line, such as ``deepspeed``. The other entries stay.
"""

import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

STEPS = (2, 4, 6)


def lightning_checkpoints(folder: Path) -> None:
    """Train with Lightning; ModelCheckpoint keeps every second step and a copy of the last step."""
    import lightning  # noqa: PLC0415
    import torch  # noqa: PLC0415
    from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: PLC0415
    from lightning.pytorch.demos.boring_classes import BoringModel  # noqa: PLC0415

    torch.manual_seed(0)
    keeper = ModelCheckpoint(dirpath=folder, every_n_train_steps=2, save_top_k=-1, save_last=True)
    lightning.Trainer(max_steps=6, callbacks=[keeper], logger=False, accelerator="cpu", **_QUIET).fit(BoringModel())


def lightning_sharded_checkpoints(folder: Path) -> None:
    """Train with ``fully_shard`` (FSDP) in Lightning's ModelParallelStrategy, whose checkpoints are folders."""
    import lightning  # noqa: PLC0415
    from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: PLC0415
    from lightning.pytorch.demos.boring_classes import BoringModel  # noqa: PLC0415
    from lightning.pytorch.strategies import ModelParallelStrategy  # noqa: PLC0415
    from torch import nn  # noqa: PLC0415
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415

    class Sharded(BoringModel):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer: Any = nn.Linear(32, 2)

        def configure_model(self) -> None:
            fully_shard(self.layer, mesh=self.device_mesh["data_parallel"])

    keeper = ModelCheckpoint(dirpath=folder, every_n_train_steps=2, save_top_k=-1)
    strategy = ModelParallelStrategy(save_distributed_checkpoint=True)
    trainer = lightning.Trainer(
        max_steps=4, callbacks=[keeper], logger=False, accelerator="cpu", devices=2, strategy=strategy, **_QUIET
    )
    trainer.fit(Sharded())


_QUIET = {"enable_progress_bar": False, "enable_model_summary": False, "limit_val_batches": 0}


def trainer_checkpoints(folder: Path) -> None:
    """Train a tiny model with the Trainer of transformers."""
    import torch  # noqa: PLC0415
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments  # noqa: PLC0415

    config = BertConfig(
        vocab_size=16, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8, num_labels=2
    )
    data = [{"input_ids": torch.tensor([1, 2, 3]), "labels": torch.tensor(at % 2)} for at in range(16)]
    settings = TrainingArguments(
        output_dir=str(folder), max_steps=6, save_steps=2, per_device_train_batch_size=2, report_to=[], use_cpu=True
    )
    Trainer(BertForSequenceClassification(config), settings, train_dataset=data).train()


def deepspeed_checkpoints(folder: Path) -> None:
    """Save checkpoints of a DeepSpeed engine with ZeRO stage 1."""
    import deepspeed  # noqa: PLC0415
    import torch  # noqa: PLC0415

    model = torch.nn.Linear(4, 2)
    settings = {"train_batch_size": 2, "zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer": True}
    optimizer = torch.optim.AdamW(model.parameters())
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)
    for step in range(1, max(STEPS) + 1):
        loss = engine(torch.rand(2, 4)).sum()
        engine.backward(loss)
        engine.step()
        if step in STEPS:
            engine.save_checkpoint(str(folder))


def distributed_checkpoints(folder: Path) -> None:
    """Save a sharded state of two processes with torch.distributed.checkpoint."""
    import torch.multiprocessing as processes  # noqa: PLC0415

    processes.start_processes(_distributed_rank, args=(str(folder),), nprocs=2, start_method="spawn")


def _distributed_rank(rank: int, folder: str) -> None:
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415
    import torch.distributed.checkpoint as dcp  # noqa: PLC0415
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415

    dist.init_process_group("gloo", rank=rank, world_size=2)
    model = torch.nn.Linear(8, 8)
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    for step in STEPS:
        dcp.save({"model": model.state_dict()}, checkpoint_id=f"{folder}/step-{step}")
    dist.destroy_process_group()


def orbax_checkpoints(folder: Path) -> None:
    """Save steps with Orbax's CheckpointManager."""
    import numpy  # noqa: PLC0415
    import orbax.checkpoint as orbax  # noqa: PLC0415

    with orbax.CheckpointManager(folder.resolve()) as manager:
        for step in STEPS:
            manager.save(step, args=orbax.args.StandardSave({"weights": numpy.ones((4, 4))}))
            manager.wait_until_finished()


def orbax_interrupted(folder: Path) -> None:
    """Save a step with Orbax, and end the process while the next step is in its temporary folder."""
    program = f"""
import os, pathlib, numpy, orbax.checkpoint as orbax
manager = orbax.CheckpointManager(pathlib.Path({str(folder.resolve())!r}))
manager.save(2, args=orbax.args.StandardSave({{"weights": numpy.ones((4, 4))}}))
manager.wait_until_finished()
pathlib.Path.rename = os.rename = lambda *paths, **more: os._exit(0)
manager.save(4, args=orbax.args.StandardSave({{"weights": numpy.ones((4, 4))}}))
manager.wait_until_finished()
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def plain_checkpoints(folder: Path) -> None:
    """Save files with torch.save."""
    import torch  # noqa: PLC0415

    for step in STEPS:
        torch.save(torch.nn.Linear(2, 2).state_dict(), folder / f"step-{step}.pt")


MAKERS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "lightning": ("lightning", lightning_checkpoints),
    "lightning-fsdp": ("lightning", lightning_sharded_checkpoints),
    "transformers": ("transformers", trainer_checkpoints),
    "deepspeed": ("deepspeed", deepspeed_checkpoints),
    "torch-distributed": ("torch", distributed_checkpoints),
    "orbax": ("orbax-checkpoint", orbax_checkpoints),
    "orbax-interrupted": ("orbax-checkpoint", orbax_interrupted),
    "plain": ("torch", plain_checkpoints),
}
SMALL_TEXTS = ("latest",)  # files whose content the client reads


def main(output: Path, *names: str) -> None:
    """Write the list of each library's checkpoint files: path, size in bytes, and seconds since the oldest file."""
    made: dict[str, Any] = json.loads(output.read_text()) if output.exists() else {}
    for name in names or MAKERS:
        library, _ = MAKERS[name]
        with tempfile.TemporaryDirectory() as kept:
            environment = {**os.environ, "DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": "", "MASTER_PORT": "29511"}
            environment.update(MASTER_ADDR="127.0.0.1", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
            if name == "lightning-fsdp":
                for variable in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
                    del environment[variable]
            subprocess.run([sys.executable, __file__, "--make", name, kept], check=True, env=environment, cwd=kept)
            files = [file for file in sorted(Path(kept).rglob("*")) if file.is_file()]
            first = min(file.stat().st_mtime for file in files)
            made[name] = {
                "made_by": f"{library} {importlib.metadata.version(library)}",
                "files": [
                    [file.relative_to(kept).as_posix(), file.stat().st_size, round(file.stat().st_mtime - first, 2)]
                    for file in files
                ],
                "texts": {
                    file.relative_to(kept).as_posix(): file.read_text() for file in files if file.name in SMALL_TEXTS
                },
            }
    output.write_text(json.dumps(made, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "--make":
        MAKERS[sys.argv[2]][1](Path(sys.argv[3]))
    else:
        main(Path(sys.argv[1]), *sys.argv[2:])
