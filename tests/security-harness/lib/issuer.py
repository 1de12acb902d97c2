"""An issuer of access tokens on loopback, with metadata and one key."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

LIFETIME_S = 3600


class Issuer:
    """Signs tokens with its own key, and publishes the key."""

    def __init__(self):
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def token(self, subject, audience):
        now = int(time.time())
        claims = {"iss": self.url, "sub": subject, "aud": audience, "iat": now, "exp": now + LIFETIME_S}
        return jwt.encode(claims, self.key, algorithm="ES256", headers={"kid": "one"})

    def subject(self, token, audience):
        """The subject of this issuer's token for `audience`; `None` for any other token."""
        try:
            claims = jwt.decode(token, self.key.public_key(), ["ES256"], audience=audience, issuer=self.url)
        except jwt.InvalidTokenError:
            return None
        return claims["sub"]

    def close(self):
        self.server.shutdown()

    def _handler(issuer):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                jwk = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(issuer.key.public_key()))
                documents = {
                    "/.well-known/oauth-authorization-server": {"issuer": issuer.url, "jwks_uri": f"{issuer.url}/keys"},
                    "/keys": {"keys": [{**jwk, "kid": "one", "alg": "ES256", "use": "sig"}]},
                }
                document = documents.get(self.path)
                body = json.dumps(document).encode()
                self.send_response(200 if document else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        return Handler
