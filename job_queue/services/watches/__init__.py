"""Regular looks at running jobs, each a part of the outlook: idle GPUs, and work without a checkpoint."""
