"""A minimal npm registry and Python package index with the packages of a folder."""

import base64
import contextlib
import hashlib
import http.server
import json
import pathlib
import tarfile
import threading
import urllib.parse


@contextlib.contextmanager
def serving(folder):
    """Serves on loopback; yields the URL."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Handler,), {"folder": pathlib.Path(folder)}))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        if path.startswith("/files/"):
            self.answer("application/octet-stream", (self.folder / pathlib.PurePosixPath(path).name).read_bytes())
        elif path == "/simple/fanlight/":
            links = (f'<a href="/files/{file.name}#sha256={sha(file)}">{file.name}</a>' for file in self.folder.glob("*.whl"))
            self.answer("text/html", "\n".join(links).encode())
        elif document := self.package(path[1:]):
            self.answer("application/json", json.dumps(document).encode())
        else:
            self.send_error(404)

    def package(self, name):
        """The npm registry's document about a package."""
        for file in self.folder.glob("*.tgz"):
            with tarfile.open(file) as tar:
                manifest = json.load(tar.extractfile("package/package.json"))
            if manifest["name"] == name:
                integrity = base64.b64encode(hashlib.sha512(file.read_bytes()).digest()).decode()
                host = self.headers["Host"]
                manifest["dist"] = {"tarball": f"http://{host}/files/{file.name}", "integrity": f"sha512-{integrity}"}
                version = manifest["version"]
                return {"name": name, "dist-tags": {"latest": version}, "versions": {version: manifest}}
        return None

    def answer(self, kind, content):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_HEAD = do_GET

    def log_message(self, *_):
        pass


def sha(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()
