"""What runs a training job: its instances, their processes, files and logs."""
