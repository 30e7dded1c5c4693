"""Access to the accounts and regions other than those of the queue's stack."""
