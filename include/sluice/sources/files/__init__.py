"""The file source: its declaration, the listing, what has changed since it was read, and how Spark reads it."""
