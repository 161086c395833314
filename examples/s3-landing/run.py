"""Start an S3 server, write objects, run the project, add an object whose key sorts first, print the rows, and stop everything.

make example-s3
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import botocore.session
import pandas

from headrace.testing.deployment import RunningDeployment, run_deployment

HERE = Path(__file__).resolve().parent
SERVER = HERE.parents[1] / "scripts" / "brokers" / "versitygw.sh"
CUSTOMERS = ("Ada", "Bo", "Cy")
OBJECTS = 10
ORDERS = 30


def main() -> int:
    """Run the example and return the exit code."""
    with tempfile.TemporaryDirectory(prefix="headrace-s3-landing-") as folder, s3(Path(folder) / "s3") as address:
        print(f"· An S3 server runs on {address}.")
        client = connect(address)
        client.create_bucket(Bucket="landing")
        for day in range(1, OBJECTS):
            write_orders(client, day)
        print(f"· {OBJECTS - 1} objects with {ORDERS} orders each are in the bucket.")
        os.environ["HEADRACE_CONNECTION_S3"] = f"s3://test:testtest@{address}?region=us-east-1&scheme=http"
        with run_deployment(HERE / "project.py", Path(folder) / "home") as deployment:
            print("· Headrace reads them. Spark starts …")
            deployment.wait_until(lambda: rows_of(deployment, OBJECTS - 1), timeout=180)
            write_orders(client, 0)
            print("· An object whose key sorts before all others arrives late …")
            rows = deployment.wait_until(lambda: rows_of(deployment, OBJECTS), timeout=180)
        show(pandas.DataFrame(rows))
    return 0


@contextmanager
def s3(data: Path) -> Iterator[str]:
    """Run an S3 server with an empty folder for its data. Its address is the value."""
    environment = os.environ | {"HEADRACE_BROKER_DATA": str(data)}
    subprocess.run([SERVER, "setup"], check=True, env=environment)
    address = subprocess.run([SERVER, "start"], check=True, env=environment, stdout=subprocess.PIPE, text=True).stdout.strip()
    try:
        yield address
    finally:
        subprocess.run([SERVER, "wipe"], check=True, env=environment)


def connect(address: str) -> Any:
    """Return a client of the server."""
    return botocore.session.get_session().create_client(
        "s3", region_name="us-east-1", endpoint_url=f"http://{address}", aws_access_key_id="test", aws_secret_access_key="testtest"
    )


def write_orders(client: Any, day: int) -> None:
    """Write the orders of one day as one object. Every second order is paid."""
    orders = [
        {
            "id": f"order-{day}-{number}",
            "customer": CUSTOMERS[number % len(CUSTOMERS)],
            "status": ("paid", "open")[number % 2],
            "cents": 100 + number,
        }
        for number in range(ORDERS)
    ]
    body = "".join(json.dumps(order) + "\n" for order in orders)
    client.put_object(Bucket="landing", Key=f"orders/2026-11-{day + 10}.jsonl", Body=body.encode())


def rows_of(deployment: RunningDeployment, objects: int) -> list[dict[str, Any]]:
    """Return the rows of the table once those of all objects are there, until then none."""
    folder = deployment.tables / "paid"
    if not list(folder.glob("*.parquet")):
        return []
    rows: list[dict[str, Any]] = pandas.read_parquet(folder).to_dict("records")
    return rows if len(rows) == objects * ORDERS // 2 else []


def show(rows: pandas.DataFrame) -> None:
    """Print the newest rows and the sums."""
    print(f"\n{len(rows)} rows in the table paid. The last ones:\n")
    print(rows.sort_values("seq").tail(6).to_string(index=False))
    print("\nBy customer, in cents:\n")
    print(rows.groupby("customer")["cents"].agg(["count", "sum"]).to_string())


if __name__ == "__main__":
    sys.exit(main())
