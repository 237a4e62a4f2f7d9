"""A page that fails, whatever it called: the server that makes it lives on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from fastapi.routing import APIRoute

from sluice.errors import DeclarationError
from sluice.foreign_code import described, error_line


class GuardedRoute(APIRoute):
    """A route on which what is no `Exception` becomes an error of ours: it would end the server's loop.

    Pages are made in threads, which neither Ctrl-C nor a signal reaches: what is raised there is a page's own.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, _guarded(endpoint), **options)


def _guarded(make_page: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make_page)
    def guarded(*arguments: Any, **named: Any) -> Any:
        try:
            return make_page(*arguments, **named)
        except Exception:
            raise
        except BaseException as exc:
            problem = f"the page can't be made: {described(exc)}"
            raise DeclarationError(problem, where=error_line(exc), remedy="correct it") from exc

    return guarded
