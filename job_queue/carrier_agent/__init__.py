"""The agent of a carrier: it runs members side by side on one instance, each on its own GPUs.

The agent runs in the carrier's container, with any Python from 3.8 on that the image has, and with the standard library
only. The queue packs this folder into one archive (ADR 0080).
"""
