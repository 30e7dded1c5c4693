"""Finds the root of 2 by steps of a given size; the size decides how well."""

import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
parser.add_argument("--steps", type=int, default=20)
arguments = parser.parse_args()

guess = 1.0
for _ in range(arguments.steps):
    guess -= arguments.lr * (guess * guess - 2)
print(f"lr {arguments.lr}, {arguments.steps} steps: error {abs(guess - 2**0.5):.6f}")
