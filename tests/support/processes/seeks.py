"""`headrace upstreams seek` on a deployment of real processes, and an api that cannot be told of one step of a seek."""

from __future__ import annotations

import json
from typing import Any

from headrace.wire.calls import admin as calls
from support.processes.deployment import Deployment, Trouble, until


class SeekScene:
    """A deployment whose project has one trigger, `orders`."""

    def __init__(self, deployment: Deployment, project: str, connection: str) -> None:
        self.deployment = deployment
        deployment.share_connection(connection)
        self.project = deployment.project(project)

    def seek(self, to: str, *arguments: str, code: int = 0) -> Any:
        """Run the command, and return what it prints as JSON."""
        words = ("upstreams", "seek", "orders", "--to", to, "--project", str(self.project), "--json", *arguments)
        result = self.deployment.cli(*words)
        assert result.returncode == code, result.stderr
        return json.loads(result.stdout) if code == 0 else result.stderr

    def seeks(self) -> list[Any]:
        with self.deployment.admin() as client:
            return list(client.get(calls.LIST_SEEKS)["seeks"])

    def kill_in(self, step: str) -> None:
        """Start a triggerer whose api cannot be told of a step of the seek, and kill it there."""
        trouble = Unfinished(self.deployment.url, step)
        with trouble.serving() as url:
            triggerer = self.deployment.triggerer(self.project, url=url)
            until(lambda: trouble.refused > 0, f"the {step} of the seek")
            triggerer.kill()

    def is_done(self) -> None:
        """Wait until the last seek is done."""
        until(lambda: self.seeks()[0]["state"] == "done", "the seek is done")

    def ranges(self) -> list[tuple[str, str, int, int]]:
        """Return the ranges that the audit names. It is clean."""
        audit = json.loads(self.deployment.cli("audit", "--json").stdout)
        assert audit["clean"], audit
        return sorted(
            (one["lane"].rpartition("@")[0].rpartition("/")[2], one["what"], one["first"], one["last"])
            for stream in audit["streams"]
            for one in stream["seeks"]
        )


class Unfinished(Trouble):
    """An api that cannot be told of one step of a seek."""

    def __init__(self, url: str, step: str) -> None:
        super().__init__(url, 0, share=0.0)
        self._step = step
        self.refused = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"].endswith(f"/seeks/{self._step}"):
            self.refused += 1
            await send({"type": "http.response.start", "status": 503, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})
            return
        await super().__call__(scope, receive, send)
