"""Serve a plain FastAPI + SQLAlchemy route that stores events, as a baseline: `python -m bench.control.floor PORT URL`."""

from __future__ import annotations

import sys
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from sqlalchemy import BigInteger, Column, Engine, Integer, MetaData, Table, Text, create_engine, event, insert

metadata = MetaData()
events = Table(
    "events",
    metadata,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("source", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("payload", Text, nullable=False),
)


class Event(BaseModel):
    id: str
    source: str
    type: str
    payload: str


class Events(BaseModel):
    events: list[Event]


def durable(url: str) -> Engine:
    """Return an engine whose commits are as durable as those of Headrace."""
    engine = create_engine(url)
    if engine.dialect.name == "sqlite":

        @event.listens_for(engine, "connect")
        def connected(raw: Any, entry: Any) -> None:
            del entry
            raw.execute("PRAGMA busy_timeout = 10000")
            raw.execute("PRAGMA journal_mode = WAL")
            raw.execute("PRAGMA synchronous = FULL")

    return engine


def create_app(url: str) -> FastAPI:
    engine = durable(url)
    metadata.create_all(engine)
    app = FastAPI()

    @app.get("/healthz")
    def healthz() -> dict[str, bool]:
        return {"ok": True}

    @app.post("/events", status_code=201)
    def store(batch: Events) -> dict[str, int]:
        with engine.begin() as connection:
            connection.execute(insert(events), [one.model_dump() for one in batch.events])
        return {"stored": len(batch.events)}

    return app


if __name__ == "__main__":
    uvicorn.run(create_app(sys.argv[2]), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", access_log=False)
