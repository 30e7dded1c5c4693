"""Records besides jobs that no cycle reads: places that live jobs write to, policies of before, ended attempts."""
