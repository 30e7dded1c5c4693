"""What a job finds in its container: the image's programs, the toolkit's variables and files, its requirements."""
