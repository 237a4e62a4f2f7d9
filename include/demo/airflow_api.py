"""A client of an Airflow that runs somewhere."""

from __future__ import annotations

import json
import urllib.request
from dataclasses import dataclass, field
from typing import Any

_TIMEOUT_SECONDS = 60


@dataclass
class AirflowApi:
    """Airflow's REST API, called as one user, who is logged in at the first call that needs it.

    Args:
        url: Where the API server is, without a path.
        user: Of the simple auth manager.
        password: The user's.
    """

    url: str
    user: str
    password: str = field(repr=False)
    _token: str = field(default="", repr=False)

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        """Call the REST API at a path below its version; gives the decoded answer, None if it is empty.

        Raises:
            urllib.error.HTTPError: The answer is an error.
            urllib.error.URLError: Nothing answers.
        """
        answer = self._send(method, f"/api/v2{path}", body, self._headers())
        return json.loads(answer) if answer else None

    def page(self, path: str) -> str:
        """Gives the text at any path of the server."""
        return self._send("GET", path, None, self._headers()).decode()

    def health(self) -> dict[str, Any]:
        """What the server tells of its components to anybody."""
        found: dict[str, Any] = json.loads(self._send("GET", "/api/v2/monitor/health", None, {}))
        return found

    def _headers(self) -> dict[str, str]:
        if not self._token:
            login = {"username": self.user, "password": self.password}
            self._token = json.loads(self._send("POST", "/auth/token", login, {}))["access_token"]
        return {"Authorization": f"Bearer {self._token}"}

    def _send(self, method: str, path: str, body: Any, headers: dict[str, str]) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        given = {"Content-Type": "application/json", **headers}
        request = urllib.request.Request(self.url + path, data=data, headers=given, method=method)
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:
            content: bytes = answer.read()
        return content
