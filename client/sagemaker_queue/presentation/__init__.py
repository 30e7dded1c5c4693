"""Jobs, queues and usage as tables and as text for a terminal, and policies as YAML."""
