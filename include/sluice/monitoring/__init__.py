"""Looking at streams: what a checkpoint says, how far behind it is. Read-only, without a JVM."""
