"""The AWS account that the emulator plays: what it allows, what it has, and what happened in it before."""
