"""Checkpoint and resume with PyTorch Lightning: ModelCheckpoint saves, and ckpt_path restores.

smq submit --folder examples/checkpoints --checkpoint --retries 2 -- python lightning_trainer.py --steps 40
"""

import argparse
import os
import re
import time
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

FOLDER = Path(os.environ.get("SM_CHECKPOINT_DIR", "checkpoints"))


class Curve(lightning.LightningModule):  # type: ignore[misc]  # its base class is not typed
    """A small network that learns a curve."""

    def __init__(self, seconds_per_step: float) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
        self.seconds_per_step = seconds_per_step

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        """Return the loss of a batch."""
        loss = nn.functional.mse_loss(self.network(batch[0]), batch[1])
        print(f"step {self.global_step + 1}: loss {loss.item():.6f}", flush=True)
        time.sleep(self.seconds_per_step)
        return loss

    def configure_optimizers(self) -> Any:
        """Return the optimizer."""
        return torch.optim.Adam(self.parameters(), lr=0.01)


def latest() -> Path | None:
    """Return the checkpoint with the highest step; None if there is none."""
    found = {int(name[1]): file for file in FOLDER.glob("*.ckpt") if (name := re.search(r"step=(\d+)", file.name))}
    return found[max(found)] if found else None


def main() -> None:
    """Train, from the latest checkpoint if there is one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--checkpoint-every", type=int, default=5)
    parser.add_argument("--seconds-per-step", type=float, default=0.05, help="so that there is time to watch")
    options = parser.parse_args()

    lightning.seed_everything(0)
    points = torch.rand(256, 1) * 2 - 1
    data = DataLoader(TensorDataset(points, torch.sin(3 * points)), batch_size=64)
    keeper = ModelCheckpoint(
        dirpath=FOLDER, every_n_train_steps=options.checkpoint_every, save_top_k=3, monitor="step", mode="max"
    )
    trainer = lightning.Trainer(
        max_steps=options.steps,
        max_epochs=-1,
        callbacks=[keeper],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    kept = latest()
    print(f"resuming from {kept.name}" if kept else "starting from the beginning", flush=True)
    trainer.fit(Curve(options.seconds_per_step), data, ckpt_path=kept)
    trainer.save_checkpoint(Path(os.environ.get("SM_MODEL_DIR", "."), "model.ckpt"))


if __name__ == "__main__":
    main()
