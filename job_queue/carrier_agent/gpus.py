"""Allocation of GPUs to members, and the isolation of members that share one.

A member with whole GPUs sees only its own GPUs (CUDA_VISIBLE_DEVICES). For members that share a GPU, NVIDIA MPS limits
memory and threads if its daemon can be started. Otherwise the members take turns (time slicing), and only the member's
framework can limit memory. For JAX, XLA_PYTHON_CLIENT_MEM_FRACTION sets the limit. For PyTorch, the member's code has
to pass SMQ_GPU_MEMORY_FRACTION on to torch.cuda.set_per_process_memory_fraction. TensorFlow has no such limit, but with
TF_FORCE_GPU_ALLOW_GROWTH it allocates memory only when needed.
"""

import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryFile
from typing import Dict, List, Sequence, Tuple

from .processes import ended_own, start_own

WHOLE = 10  # tenths
MPS = "nvidia-cuda-mps-control"
ENDING_SECONDS = 10.0  # from a daemon's SIGTERM to its SIGKILL
QUERY_SECONDS = 20.0


class InvalidAssignment(Exception):
    """An assignment is malformed, names a missing GPU, or needs more tenths of a GPU than are free."""


class Gpus:
    """The GPUs of an instance, which members may share in tenths."""

    def __init__(self, count: int, scratch: Path) -> None:
        self._free = [WHOLE] * count
        self.total_tenths = WHOLE * count  # of all GPUs together
        self._scratch = scratch
        self._mps: Dict[int, subprocess.Popen[bytes]] = {}

    def take(self, gpus: Sequence[int], tenths: int) -> None:
        """Allocate GPUs, or tenths of one GPU. If that is impossible, raise InvalidAssignment and allocate nothing.

        :param tenths: the part of each GPU; 10 for whole GPUs.
        """
        if not gpus or len(set(gpus)) < len(gpus) or not 0 < tenths <= WHOLE or (tenths < WHOLE and len(gpus) > 1):
            raise InvalidAssignment("its assignment must name whole GPUs, each once, or 1 to 9 tenths of one GPU")
        for gpu in gpus:
            if not 0 <= gpu < len(self._free):
                raise InvalidAssignment(f"there is no GPU {gpu}: the instance has {len(self._free)}")
            if self._free[gpu] < tenths:
                raise InvalidAssignment(f"GPU {gpu} has {self._free[gpu]} free tenths, and {tenths} are requested")
        for gpu in gpus:
            self._free[gpu] -= tenths

    def give_back(self, gpus: Sequence[int], tenths: int) -> None:
        """Release GPUs, or tenths of one GPU."""
        for gpu in gpus:
            self._free[gpu] += tenths

    def environment(self, gpus: Sequence[int], tenths: int) -> Tuple[str, Dict[str, str]]:
        """Return how the GPUs are shared (whole, mps or time-slicing), and the variables for their member.

        For a part of a GPU, start the GPU's MPS daemon if it does not run yet.
        """
        visible = ",".join(map(str, gpus))
        if tenths == WHOLE:
            return "whole", {"CUDA_VISIBLE_DEVICES": visible, "SM_NUM_GPUS": str(len(gpus))}
        share = tenths / WHOLE
        common = {
            "SM_NUM_GPUS": "1",
            "SMQ_GPU_MEMORY_FRACTION": f"{share:g}",
            "XLA_PYTHON_CLIENT_MEM_FRACTION": f"{share * 0.9:.2f}",  # for JAX; the rest is for CUDA contexts
            "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        }
        if self._ensure_mps(gpus[0]):
            limits = {
                "CUDA_VISIBLE_DEVICES": "0",  # the GPU's number in the MPS daemon, which sees only this GPU
                "CUDA_MPS_PIPE_DIRECTORY": str(self._pipes(gpus[0])),
                "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(tenths * 10),
            }
            memory = _memory(gpus[0])
            if memory:
                limits["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={int(memory * share)}M"
            return "mps", {**common, **limits}
        return "time-slicing", {**common, "CUDA_VISIBLE_DEVICES": visible}

    def close(self) -> None:
        """End the MPS daemons by SIGTERM, then by SIGKILL, because a suspended daemon does not react to SIGTERM."""
        for daemon in self._mps.values():
            daemon.terminate()
        for daemon in self._mps.values():
            _wait(daemon, ENDING_SECONDS)

    def _ensure_mps(self, gpu: int) -> bool:
        """Start the MPS daemon of a GPU at the first call. Return whether the daemon still runs after half a second."""
        if gpu not in self._mps:
            program = shutil.which(MPS)
            if program is None:
                return False
            pipes = self._pipes(gpu)
            pipes.mkdir(parents=True, exist_ok=True)
            environment = {
                **os.environ,
                "CUDA_VISIBLE_DEVICES": str(gpu),
                "CUDA_MPS_PIPE_DIRECTORY": str(pipes),
                "CUDA_MPS_LOG_DIRECTORY": str(pipes),
            }
            self._mps[gpu] = start_own([program, "-f"], env=environment, stdin=subprocess.DEVNULL)
        try:
            self._mps[gpu].wait(0.5)
        except subprocess.TimeoutExpired:
            return True
        return False

    def _pipes(self, gpu: int) -> Path:
        return self._scratch / f"mps-{gpu}"


def _memory(gpu: int) -> int:
    """Return the MiB of a GPU; 0: unknown."""
    query = ["nvidia-smi", "-i", str(gpu), "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        with TemporaryFile() as answer:
            process = start_own(query, stdout=answer, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
            if _wait(process, QUERY_SECONDS) != 0:
                return 0
            answer.seek(0)
            return int(answer.read(100).split()[0])
    except (OSError, ValueError, IndexError):
        return 0


def _wait(process: "subprocess.Popen[bytes]", seconds: float) -> int:
    """Return the exit code of a process, which is killed after `seconds`; -1 if SIGKILL does not end the process."""
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return -1
    ended_own(process.pid)
    return code


def gpu_numbers(gpus: object) -> List[int]:
    """Return the GPU numbers of an assignment; raise InvalidAssignment if they are not a list of whole numbers."""
    if not isinstance(gpus, list) or not all(isinstance(it, int) and not isinstance(it, bool) for it in gpus):
        raise InvalidAssignment("the field gpus of its assignment is not a list of whole numbers")
    return gpus
