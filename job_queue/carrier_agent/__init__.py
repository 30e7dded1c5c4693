"""The agent of a carrier: runs members side by side on one instance, each on GPUs of its own.

It runs in the carrier's container, with whatever Python the image has (3.8 or later), and the standard library alone.
The queue packs this folder into one archive (ADR 0080) and imports nothing of it.
"""
