//! A server's identity as a digest of its definition. Stored lists are used only if the definition
//! is the same.

use std::hash::{Hash as _, Hasher};

use aws_lc_rs::digest::{Context, SHA256};
use data_encoding::HEXLOWER;
use fanlight_config::{Server, Transport};
use serde::{Deserialize, Serialize};

/// A digest of a server's name and definition with all values expanded. It is stored encrypted, and
/// reveals none of the secrets among them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Definition(String);

impl Definition {
    pub(super) fn new(server: &Server) -> Self {
        let mut transport = server.transport.clone();
        if let Transport::Stdio { env, .. } = &mut transport {
            // The order of variables does not matter.
            env.sort_by(|(one, _), (other, _)| one.cmp(other));
        }
        let mut digest = Digest(Context::new(&SHA256));
        (&server.name, transport, server.era).hash(&mut digest);
        // The session policy decides which client capabilities the server sees when its lists are
        // read.
        (server.session, &server.inherit_env).hash(&mut digest);
        server.sandbox.sandbox(&[]).hash(&mut digest);
        Self(HEXLOWER.encode(digest.0.finish().as_ref()))
    }
}

/// A digest of values, which delimit themselves. Another build of Fanlight may get another one; then
/// lists are read again.
struct Digest(Context);

impl Hasher for Digest {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        0
    }
}
