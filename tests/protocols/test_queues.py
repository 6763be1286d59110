"""boto3 receives messages from queues, on one worker and on two, through cancelled polls, kills and a restart."""

from __future__ import annotations

import json
import random
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from private_servers import Redis
from redis import Redis as Client

from .ledger import App, AtLeastOnce
from .watch_sqs import client_of

pytestmark = pytest.mark.servers

QUEUES = [f"queue-{number}" for number in range(8)]


class Queues(AtLeastOnce):
    """The queues of *app*: messages come again until they are deleted."""

    def __init__(self, app: App, names: list[str], seed: int) -> None:
        super().__init__(names)
        self.app, self.chance, self.client = app, random.Random(seed), client_of(app.url)

    def send(self, queue: str | None = None) -> None:
        queue = queue or self.chance.choice([*self.written])
        self.written[queue] += 1
        self.client.send_message(QueueUrl=f"{self.app.url}/{queue}", MessageBody=str(self.written[queue]))

    def poll_and_leave(self) -> None:
        """Poll a queue, and break the connection at any moment."""
        queue, pause = self.chance.choice([*self.written]), self.chance.random() / 10
        asked = {"QueueUrl": f"{self.app.url}/{queue}", "WaitTimeSeconds": 20, "VisibilityTimeout": 2}
        body = json.dumps(asked).encode()
        head = f"POST / HTTP/1.1\r\nhost: a\r\nx-amz-target: AmazonSQS.ReceiveMessage\r\ncontent-length: {len(body)}"
        with socket.create_connection(("127.0.0.1", self.app.port)) as connection:
            connection.sendall(head.encode() + b"\r\n\r\n" + body)
            time.sleep(pause)


@pytest.mark.parametrize("workers", [1, 2])
def test_messages_are_received_until_they_are_deleted(redis: Redis, workers: int) -> None:
    with App("sqs", redis.url(), workers) as app:
        queues = Queues(app, QUEUES, workers)
        try:
            for _ in range(3):
                queues.start("watch_sqs", app.url)
            # Nobody leaves: each is received once.
            for _ in range(80):
                queues.send()
            assert set(queues.settled().values()) == {1}
            # Others also poll the queues, and leave. What was on the wire to them comes back.
            with ThreadPoolExecutor(20) as polls:
                for _ in range(100):
                    polls.submit(queues.poll_and_leave)
                    queues.send()
                    time.sleep(queues.chance.random() / 50)
            assert set(queues.settled().values()) == {1}
            # Consumers are killed in the middle of whatever they do.
            for _ in range(4):
                for _ in range(25):
                    queues.send()
                    time.sleep(queues.chance.random() / 50)
                queues.kill(queues.chance.choice(queues.watchers))
                queues.start("watch_sqs", app.url)
                queues.settled()
            # The server restarts, with polls parked.
            assert app.stop() < 10
            app.start()
            for queue in QUEUES:
                queues.send(queue)
            queues.settled()
            time.sleep(5.5)  # what was not deleted comes back
            received = queues.settled()
        finally:
            queues.close()
    again = received.total() - len(received)
    assert again <= 7 * len(QUEUES)  # at most what consumers had not deleted, when killed or when the server stopped
    print(f"sqs, {workers} workers: {len(received)} messages, 0 lost, {again} again after a kill or the restart")


@pytest.mark.parametrize("workers", [1, 2])
def test_message_is_claimed_about_once(redis: Redis, workers: int) -> None:
    """100 consumers wait for one queue. Besides, each poll looks once as it comes."""
    with App("sqs", redis.url(), workers) as app, Client.from_url(redis.url()) as server:
        queues = Queues(app, ["jobs"], 0)

        def claims() -> int:
            return int(server.info("commandstats")["cmdstat_zrangebyscore"]["calls"])

        try:
            queues.start("watch_sqs", app.url, clients=100)
            while server.info("commandstats").get("cmdstat_zrangebyscore", {"calls": 0})["calls"] < 100:
                time.sleep(0.05)
            time.sleep(1.0)
            before, begun = claims(), time.monotonic()
            for _ in range(200):
                queues.send()
                time.sleep(queues.chance.random() / 25)
            assert set(queues.settled().values()) == {1}
            # A poll looks once more at its end, after 20 s. Each message leads to one more poll.
            ends = 2 * 100 * (time.monotonic() - begun) / 20
            found = (claims() - before - ends) / 200 - 1
        finally:
            queues.close()
    print(f"sqs, {workers} workers: {found:.2f} claims a message")
    assert found <= 1.5
