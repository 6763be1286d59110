"""Watch ConfigMaps with the kubernetes client: python watch_kubernetes.py URL NAMES... Prints "name value"."""

from __future__ import annotations

import sys
import time

import urllib3
from kubernetes import client, watch


def show(found: client.V1ConfigMap) -> None:
    print(f"{found.metadata.name} {found.data['value']}\n", end="", flush=True)


if __name__ == "__main__":
    api = client.CoreV1Api(client.ApiClient(client.Configuration(host=sys.argv[1])))
    listed = api.list_namespaced_config_map("default")
    for found in listed.items:
        show(found)
    for name in sys.argv[2:]:
        print(f"{name} ready\n", end="", flush=True)
    version = listed.metadata.resource_version
    while True:
        watching = watch.Watch()
        try:
            for event in watching.stream(
                api.list_namespaced_config_map, "default", resource_version=version, timeout_seconds=2
            ):
                show(event["object"])
                version = event["object"].metadata.resource_version
        except (client.ApiException, urllib3.exceptions.HTTPError):  # the server restarts
            time.sleep(0.1)
