"""The agent of a carrier: it runs members side by side on one instance, each on its own GPUs.

The agent runs in the carrier's container, and needs only the image's Python, 3.8 or later, and the standard library.
The queue packs this folder into one archive (ADR 0080).
"""
