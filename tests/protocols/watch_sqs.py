"""Receive messages with boto3, and delete them, a thread each: python watch_sqs.py URL QUEUES...

Prints "queue value" for each message. A queue that is named several times has as many consumers.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError


def client_of(url: str) -> Any:
    config = Config(max_pool_connections=200, read_timeout=30, retries={"max_attempts": 0})
    keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
    return boto3.client("sqs", region_name="local", endpoint_url=url, config=config, **keys)


def consume(client: Any, queue: str) -> None:
    url = client.meta.endpoint_url + f"/{queue}"
    print(f"{queue} ready\n", end="", flush=True)
    while True:
        try:
            found = client.receive_message(QueueUrl=url, WaitTimeSeconds=20, VisibilityTimeout=5)
            for message in found.get("Messages", []):
                print(f"{queue} {message['Body']}\n", end="", flush=True)
                client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        except (BotoCoreError, ClientError):  # the server restarts
            time.sleep(0.1)


if __name__ == "__main__":
    client = client_of(sys.argv[1])
    for queue in sys.argv[2:]:
        threading.Thread(target=consume, args=(client, queue)).start()
