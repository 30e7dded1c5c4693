"""The commands of ``smq``, in modules by subject."""
