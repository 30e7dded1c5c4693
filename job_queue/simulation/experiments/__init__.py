"""The same jobs simulated under several policies, and advice on a policy's settings."""
