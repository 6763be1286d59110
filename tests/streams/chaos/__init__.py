"""Logs under faults: real servers, worker processes, and an audience over HTTP."""
