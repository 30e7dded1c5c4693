"""The commands of the local cloud: the demo, `up` and `exec`."""
