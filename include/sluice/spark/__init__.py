"""Spark as a process: the jars it needs, the profile that it is launched with, and its JVM."""
