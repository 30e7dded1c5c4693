"""Several accounts and regions in one local cloud."""
