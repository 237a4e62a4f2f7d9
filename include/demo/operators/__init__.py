"""The examples of operators: each of Spark's stateful operators as a stream of its own, on flights and weather."""
