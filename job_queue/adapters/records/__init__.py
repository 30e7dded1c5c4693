"""Records besides jobs that no cycle reads: places in S3 that live jobs write to, and policies of before."""
