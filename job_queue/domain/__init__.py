"""The rules of the queue as pure code, without AWS and HTTP."""
