"""Lets the tests here take a `bench`, on which streams are tried on Spark."""

from sluice.testing import bench

__all__ = ["bench"]
