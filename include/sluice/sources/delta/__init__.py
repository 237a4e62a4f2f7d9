"""The Delta source: its declaration, its offsets as Spark writes them, and what is refused."""
