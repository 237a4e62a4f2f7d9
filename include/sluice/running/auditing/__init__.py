"""Quality while a run writes, and afterwards: what is measured and where, what leaves, what is held, what is recorded.

`sluice.quality` says what a suite means; here Spark measures it.
"""
