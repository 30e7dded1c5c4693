"""What the commands of ``smq`` and the methods of ``QueueClient`` do alike, without a word to anybody."""
