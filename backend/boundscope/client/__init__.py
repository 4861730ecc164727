"""Talks to a daemon. Imports neither torch nor Qt.

    connection = ensure_local_daemon()
    with Client.connect(connection) as client:
        info = client.submit(VerifyJob(network=client.upload("net.onnx"), ...))
        client.subscribe(info.id)
        for change in client.poll(1.0): ...

A Client does not reconnect by itself: when the daemon goes away, the next call raises DaemonError. Whoever wants
to go on connects a new Client and asks for `events(job_id, after=last number seen)`; nothing else is needed.
"""

from boundscope.client.connection import connection_path, home_path, read_connection_file
from boundscope.client.link import Client
from boundscope.client.local import ensure_local_daemon
from boundscope.client.remote import RemoteHost, connect_remote, read_host

__all__ = [
    "Client",
    "RemoteHost",
    "connect_remote",
    "connection_path",
    "ensure_local_daemon",
    "home_path",
    "read_connection_file",
    "read_host",
]
