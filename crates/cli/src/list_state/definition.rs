//! A server's identity as a digest of its definition. Stored lists are used only if the definition
//! is the same.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use aws_lc_rs::digest::{Context, SHA256};
use data_encoding::HEXLOWER;
use fanlight_config::settings::{Landlock, Sandbox};
use fanlight_config::{Config, EraChoice, Server, SessionPolicy, Transport};
use serde::{Deserialize, Serialize};

/// A digest of a server's name and definition with all values expanded. It is stored encrypted, and
/// reveals none of the secrets among them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Definition(String);

impl Definition {
    pub(super) fn new(config: &Config, server: &Server) -> Self {
        let mut digest = Digest(Context::new(&SHA256));
        digest.text("definition of a server").text(&server.name);
        digest.transport(&server.transport);
        digest.text(match server.era {
            EraChoice::Auto => "auto",
            EraChoice::Legacy => "legacy",
            EraChoice::Modern => "modern",
        });
        // The session policy decides which client capabilities the server sees when its lists are
        // read.
        digest.text(match server.session {
            SessionPolicy::PerClient => "per-client",
            SessionPolicy::Auto => "auto",
            SessionPolicy::Shared => "shared",
        });
        digest.list(&server.inherit_env, |digest, name| digest.text(name));
        digest.sandbox(&server.sandbox.sandbox(&config.own_files));
        Self(HEXLOWER.encode(digest.0.finish().as_ref()))
    }
}

/// A digest of values. Each value is preceded by its length, so that different lists of values
/// never look alike.
struct Digest(Context);

impl Digest {
    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.number(bytes.len() as u64);
        self.0.update(bytes);
        self
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.bytes(text.as_bytes())
    }

    fn number(&mut self, number: u64) -> &mut Self {
        self.0.update(&number.to_be_bytes());
        self
    }

    fn list<T>(
        &mut self,
        all: &[T],
        each: impl for<'a> Fn(&'a mut Self, &T) -> &'a mut Self,
    ) -> &mut Self {
        self.number(all.len() as u64);
        for one in all {
            each(self, one);
        }
        self
    }

    fn optional<T>(
        &mut self,
        value: Option<T>,
        some: impl for<'a> Fn(&'a mut Self, T) -> &'a mut Self,
    ) -> &mut Self {
        match value {
            Some(value) => {
                self.number(1);
                some(self, value)
            }
            None => self.number(0),
        }
    }

    fn path(&mut self, path: &Path) -> &mut Self {
        self.bytes(path.as_os_str().as_bytes())
    }

    fn transport(&mut self, transport: &Transport) {
        match transport {
            Transport::Stdio {
                command,
                args,
                env,
                cwd,
            } => {
                self.text("stdio")
                    .text(command)
                    .list(args, |digest, argument| digest.text(argument));
                // The order of variables does not matter.
                let mut env: Vec<_> = env.iter().collect();
                env.sort_by(|(one, _), (other, _)| one.cmp(other));
                self.list(&env, |digest, (name, value)| {
                    digest.text(name).text(value.expose())
                });
                self.optional(cwd.as_deref(), Self::path);
            }
            Transport::Http { url, headers } | Transport::Sse { url, headers } => {
                self.text("http").text(url);
                self.list(headers, |digest, (name, value)| {
                    digest.text(name).text(value.expose())
                });
            }
            Transport::Incomplete { .. } => drop(self.text("incomplete")),
        }
    }

    fn sandbox(&mut self, sandbox: &Sandbox) {
        let Sandbox {
            landlock,
            memory,
            processes,
            files,
            user,
        } = sandbox;
        self.optional(
            landlock.as_ref(),
            |digest,
             Landlock {
                 read,
                 write,
                 connect,
                 bind,
                 except: _,
             }| {
                for paths in [read, write] {
                    digest.list(paths, |digest, path| digest.path(path));
                }
                for ports in [connect, bind] {
                    digest.optional(ports.as_ref(), |digest, ports| {
                        digest.list(ports, |digest, port| digest.number((*port).into()))
                    });
                }
                digest
            },
        );
        for amount in [memory, processes, files] {
            self.optional(*amount, Self::number);
        }
        self.optional(user.as_deref(), Self::text);
    }
}
