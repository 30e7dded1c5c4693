"""The content of a job's container: the image's programs, the toolkit's variables and files, and requirements."""
