"""What a person starts: the demo, `up` and `exec`."""
