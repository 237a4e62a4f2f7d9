"""One script per figure, each a ratio measured side by side. `python -m benchmarks` runs all of them."""
