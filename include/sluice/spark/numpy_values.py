"""NumPy's values on their way into the JVM: only a process that has NumPy can have any."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class _OnceNumPyIsLoaded:
    """A converter of Py4J's that is asked for nothing before NumPy is imported."""

    converter: Any

    def can_convert(self, value: object) -> bool:
        return "numpy" in sys.modules and self.converter.can_convert(value)

    def convert(self, value: object, gateway_client: Any) -> Any:
        return self.converter.convert(value, gateway_client)


def spare_numpy() -> None:
    """Let pyspark not import NumPy and pandas for the first value that it sends to the JVM.

    Its converters do, by way of `pyspark.testing`, which costs each start a second of CPU.
    """
    from py4j.protocol import INPUT_CONVERTER
    from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter

    for index, converter in enumerate(INPUT_CONVERTER):
        if isinstance(converter, NumpyArrayConverter | NumpyScalarConverter):
            INPUT_CONVERTER[index] = _OnceNumPyIsLoaded(converter)
