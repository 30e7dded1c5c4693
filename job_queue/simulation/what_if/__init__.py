"""What if: two snapshots of the queue that differ in the policy, and what that makes of it."""
