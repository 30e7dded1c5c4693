"""The commands ``smq history`` and ``smq usage`` about finished attempts."""
