"""A local user's listener on the engine's port: keeps what it gets, and says it back as model ids.

    stranger.py HOST PORT RECORD [CERTIFICATE]

Prints its port when it listens. Standard library only: it also runs on container hosts.
"""

from __future__ import annotations

import json
import socket
import ssl
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        with open(sys.argv[3], "a") as record:
            record.write(f"{self.requestline}\n{self.headers}\n")
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        said = [{"id": str(value)} for value in self.headers.values()] or [{"id": "none"}]
        body = json.dumps({"data": said}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *args: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    address_family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
    daemon_threads = True


server = Server((sys.argv[1], int(sys.argv[2])), Handler)
if len(sys.argv) > 4:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[4])
    server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_address[1], flush=True)
server.serve_forever()
