//! The order for a guard as bytes. Each part is JSON after its length.

use std::ffi::OsString;
use std::io::{self, Read};
use std::process::Command;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// More than any process can be started with.
const LONGEST: u32 = 64 << 20;

/// The process that a guard starts.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The process that the server is for; the guard ends with it.
    pub parent: u32,
    /// The time between SIGTERM and SIGKILL for the server and its descendants.
    pub grace: Duration,
    /// The program, looked up in the `PATH` of `env` if it has no slash.
    pub command: OsString,
    /// The arguments.
    pub args: Vec<OsString>,
    /// The whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// The working directory; `None` for the guard's own.
    pub cwd: Option<OsString>,
}

impl Order {
    /// The command that starts the server.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.command);
        command
            .args(&self.args)
            .env_clear()
            .envs(self.env.iter().map(|(name, value)| (name, value)));
        if let Some(cwd) = &self.cwd {
            command.current_dir(cwd);
        }
        command
    }
}

/// Encodes a part of the input of a guard: the [`Order`] for a guard that starts the step before the
/// server ([`crate::STEP`]), the sandbox, which may be empty, and the [`Order`] for the server.
///
/// # Errors
///
/// If the part is too long, or contains a path that is not UTF-8.
pub fn encode(part: &impl Serialize) -> io::Result<Vec<u8>> {
    let text = serde_json::to_vec(part)?;
    let length = u32::try_from(text.len())
        .ok()
        .filter(|length| *length <= LONGEST)
        .ok_or_else(|| invalid("the command, its arguments and its environment are too long"))?;
    Ok([length.to_be_bytes().as_slice(), &text].concat())
}

/// Reads a part, and not a byte beyond it.
pub(crate) fn read<T: DeserializeOwned>(mut from: impl Read) -> io::Result<T> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length);
    if length > LONGEST {
        return Err(invalid("no length"));
    }
    let mut text = Vec::new();
    from.by_ref().take(length.into()).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// Unbuffered standard input: bytes after an order belong to another reader.
pub(crate) struct Unbuffered;

impl Read for Unbuffered {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(rustix::stdio::stdin(), buffer)?)
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use fanlight_config::settings::{Landlock, Sandbox};
    use serde_json::json;

    use super::*;

    fn order() -> Order {
        Order {
            parent: 7,
            grace: Duration::from_millis(2000),
            command: "run".into(),
            args: vec!["".into(), OsString::from_vec(b"\xff\n".to_vec())],
            env: vec![("A".into(), "".into()), ("B".into(), "=\n".into())],
            cwd: Some("/tmp".into()),
        }
    }

    #[test]
    fn order_is_read_as_sent_and_nothing_beyond_it() {
        for order in [
            order(),
            Order {
                cwd: None,
                args: Vec::new(),
                env: Vec::new(),
                ..order()
            },
        ] {
            let mut bytes = encode(&order).unwrap();
            bytes.extend_from_slice(b"input of the server");
            let mut rest = bytes.as_slice();
            assert!(read::<Order>(&mut rest).unwrap() == order);
            assert_eq!(rest, b"input of the server");
        }
    }

    #[test]
    fn sandbox_is_read_as_sent() {
        let landlock = Landlock {
            read: vec!["/usr".into(), "/a b".into()],
            write: vec!["/tmp".into()],
            connect: Some(vec![443, 80]),
            bind: Some(Vec::new()),
            except: vec!["/etc/fanlight".into()],
        };
        let user = Some("nobody".to_owned());
        let all = Sandbox {
            landlock: Some(landlock),
            memory: Some(1),
            processes: Some(2),
            files: Some(3),
            user,
        };
        let empty = Sandbox {
            landlock: Some(Landlock::default()),
            ..Sandbox::default()
        };
        for sandbox in [all, empty, Sandbox::default()] {
            let mut bytes = encode(&sandbox).unwrap();
            bytes.extend_from_slice(b"order");
            let mut rest = bytes.as_slice();
            assert_eq!(read::<Sandbox>(&mut rest).unwrap(), sandbox);
            assert_eq!(rest, b"order");
        }
    }

    #[test]
    fn sandbox_that_cannot_be_read_is_an_error() {
        let good = json!({ "memory": 1, "user": "nobody", "landlock": Landlock::default() });
        assert!(read::<Sandbox>(encode(&good).unwrap().as_slice()).is_ok());
        for (at, wrong) in [
            ("/memory", json!("x")),
            ("/user", json!(1)),
            ("/landlock", json!({})),
            (
                "/landlock",
                json!({ "read": [], "write": [], "except": [], "more": [] }),
            ),
            ("/landlock/connect", json!("any")),
            ("/landlock/connect", json!([65_536])),
            ("/landlock/read", json!("/usr")),
        ] {
            let mut sandbox = good.clone();
            *sandbox.pointer_mut(at).unwrap() = wrong;
            let bytes = encode(&sandbox).unwrap();
            assert!(read::<Sandbox>(bytes.as_slice()).is_err(), "{sandbox}");
        }
    }

    #[test]
    fn cut_order_is_an_error() {
        let bytes = encode(&order()).unwrap();
        for end in 0..bytes.len() {
            assert!(read::<Order>(&bytes[..end]).is_err(), "{end}");
        }
        assert!(read::<Order>(&[0; 8][..]).is_err());
        assert!(read::<Order>(&[0xff; 8][..]).is_err());
    }
}
