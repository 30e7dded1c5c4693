"""Checkpoint and resume with the Trainer of Hugging Face: it saves folders, and is told from which one to resume.

smq submit --folder examples/checkpoints --checkpoint --retries 2 -- python hugging_face.py --steps 40
"""

import argparse
import os
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

FOLDER = Path(os.environ.get("SM_CHECKPOINT_DIR", "checkpoints"))


class Sentences(Dataset[dict[str, torch.Tensor]]):  # type: ignore[misc]
    """Short sequences of numbers; the label says whether the first one is even."""

    def __len__(self) -> int:
        """Return the number of sequences."""
        return 256

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        """Return a sequence."""
        words = torch.randint(0, 16, (4,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": words, "labels": words[0] % 2}


class Steps(TrainerCallback):  # type: ignore[misc]  # its base class is not typed
    """Prints each step."""

    def __init__(self, seconds_per_step: float) -> None:
        self.seconds_per_step = seconds_per_step

    def on_step_end(self, arguments: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Print the number of the step."""
        print(f"step {state.global_step}: done", flush=True)
        time.sleep(self.seconds_per_step)


def latest() -> Path | None:
    """Return the folder of the highest complete step: the Trainer writes trainer_state.json last."""
    steps = {
        int(file.parent.name.rpartition("-")[2]): file.parent for file in FOLDER.glob("checkpoint-*/trainer_state.json")
    }
    return steps[max(steps)] if steps else None


def main() -> None:
    """Train, from the latest checkpoint if there is one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--checkpoint-every", type=int, default=5)
    parser.add_argument("--seconds-per-step", type=float, default=0.05, help="so that there is time to watch")
    options = parser.parse_args()

    torch.set_num_threads(1)
    config = BertConfig(vocab_size=16, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    settings = TrainingArguments(
        output_dir=str(FOLDER),
        max_steps=options.steps,
        save_steps=options.checkpoint_every,
        save_total_limit=3,
        per_device_train_batch_size=8,
        report_to=[],
        disable_tqdm=True,
    )
    callbacks = [Steps(options.seconds_per_step)]
    trainer = Trainer(BertForSequenceClassification(config), settings, train_dataset=Sentences(), callbacks=callbacks)
    kept = latest()
    print(f"resuming from {kept.name}" if kept else "starting from the beginning", flush=True)
    trainer.train(resume_from_checkpoint=str(kept) if kept else None)
    trainer.save_model(os.environ.get("SM_MODEL_DIR", "model"))


if __name__ == "__main__":
    main()
