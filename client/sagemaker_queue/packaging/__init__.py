"""Any command as a training job: the folder it needs, the request for it, and what runs in its container."""
