"""A shell command as a training job: packing its folder, its request, and the programs that run in its container."""
