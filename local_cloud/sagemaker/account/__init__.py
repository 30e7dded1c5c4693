"""The emulated AWS account: its limits, its capacity and its earlier training jobs."""
