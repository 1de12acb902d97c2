//! The order for a guard as bytes: a length, and fields that each end with a zero byte, which no
//! field can contain.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use fanlight_config::settings::{Landlock, Sandbox};

/// The number of digits of the leading length.
const LENGTH: usize = 8;
/// More than any process can be started with.
const LONGEST: usize = 16 << 20;

/// The process that a guard starts.
#[derive(Clone, PartialEq, Eq)]
pub struct Order {
    /// The process that the server is for; the guard ends with it.
    pub parent: u32,
    /// The time between SIGTERM and SIGKILL for the server and its descendants.
    pub grace: Duration,
    /// The program, looked up in the `PATH` of `env` if it has no slash.
    pub command: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Its whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// Its working directory; `None` for the guard's own.
    pub cwd: Option<PathBuf>,
}

impl Order {
    /// The bytes to send.
    ///
    /// # Errors
    ///
    /// If a text contains a zero byte, which no process can be started with, or if there are too
    /// many bytes.
    pub fn encode(&self) -> io::Result<Vec<u8>> {
        let mut fields: Vec<OsString> = vec![
            self.parent.to_string().into(),
            self.grace.as_millis().to_string().into(),
            self.cwd.clone().unwrap_or_default().into(),
            self.command.clone(),
            self.args.len().to_string().into(),
        ];
        fields.extend(self.args.iter().cloned());
        for (name, value) in &self.env {
            fields.extend([name.clone(), value.clone()]);
        }
        frame(&fields)
    }

    /// Reads an order, and not a byte beyond it.
    pub(crate) fn read(from: impl io::Read) -> io::Result<Self> {
        Self::decode(fields(from)?).ok_or_else(|| invalid("a field is missing"))
    }

    fn decode(fields: Vec<OsString>) -> Option<Self> {
        let mut fields = fields.into_iter();
        let mut text = || fields.next();
        let parent = number(&text()?)?;
        let grace = Duration::from_millis(number(&text()?)?);
        let cwd = Some(text()?)
            .filter(|cwd| !cwd.is_empty())
            .map(PathBuf::from);
        let command = text()?;
        let args = (0..number::<usize>(&text()?)?)
            .map(|_| text())
            .collect::<Option<_>>()?;
        let mut env = Vec::new();
        while let Some(name) = text() {
            env.push((name, text()?));
        }
        Some(Self {
            parent,
            grace,
            command,
            args,
            env,
            cwd,
        })
    }

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

/// Encodes a sandbox, which may be empty. It stands between two orders: the one for a guard that
/// starts the step before the server ([`crate::STEP`]), and the one for the server.
///
/// # Errors
///
/// If a text contains a zero byte, or if there are too many bytes.
pub fn encode_sandbox(sandbox: &Sandbox) -> io::Result<Vec<u8>> {
    let Sandbox {
        landlock,
        memory,
        processes,
        files,
        user,
    } = sandbox;
    let optional = |number: &Option<u64>| {
        number
            .map(|number| number.to_string())
            .unwrap_or_default()
            .into()
    };
    let mut fields: Vec<OsString> = vec![optional(memory), optional(processes), optional(files)];
    fields.push(user.clone().unwrap_or_default().into());
    if let Some(Landlock {
        read,
        write,
        connect,
        bind,
        except,
    }) = landlock
    {
        fields.extend([ports(connect.as_deref()), ports(bind.as_deref())]);
        fields.extend([read, write].map(|paths| paths.len().to_string().into()));
        fields.extend(
            read.iter()
                .chain(write)
                .chain(except)
                .map(|path| path.clone().into_os_string()),
        );
    }
    frame(&fields)
}

/// Reads a sandbox, and not a byte beyond it.
pub(crate) fn read_sandbox(from: impl io::Read) -> io::Result<Sandbox> {
    decode_sandbox(fields(from)?)
        .ok_or_else(|| invalid("a field of the sandbox is missing or wrong"))
}

fn decode_sandbox(fields: Vec<OsString>) -> Option<Sandbox> {
    let mut fields = fields.into_iter();
    let mut limit = || Some(Some(fields.next()?).filter(|text| !text.is_empty()));
    let (memory, processes, files, user) = (limit()?, limit()?, limit()?, limit()?);
    // Unreadable text must not become "not restricted".
    let amount =
        |text: Option<OsString>| text.map_or(Some(None), |text| number::<u64>(&text).map(Some));
    let landlock = match fields.next() {
        None => None,
        Some(connect) => {
            let (connect, bind) = (read_ports(&connect)?, read_ports(&fields.next()?)?);
            let counts = (
                number::<usize>(&fields.next()?)?,
                number::<usize>(&fields.next()?)?,
            );
            let mut paths = |count| {
                (0..count)
                    .map(|_| fields.next().map(PathBuf::from))
                    .collect::<Option<Vec<_>>>()
            };
            let (read, write) = (paths(counts.0)?, paths(counts.1)?);
            Some(Landlock {
                read,
                write,
                connect,
                bind,
                except: fields.map(PathBuf::from).collect(),
            })
        }
    };
    let user = user
        .map(|user| user.into_string().ok())
        .map_or(Some(None), |user| user.map(Some))?;
    Some(Sandbox {
        landlock,
        memory: amount(memory)?,
        processes: amount(processes)?,
        files: amount(files)?,
        user,
    })
}

fn ports(ports: Option<&[u16]>) -> OsString {
    match ports {
        None => "any".into(),
        Some(ports) => ports
            .iter()
            .map(u16::to_string)
            .collect::<Vec<_>>()
            .join(",")
            .into(),
    }
}

fn read_ports(text: &OsStr) -> Option<Option<Vec<u16>>> {
    match text.to_str()? {
        "any" => Some(None),
        "" => Some(Some(Vec::new())),
        list => list
            .split(',')
            .map(|port| port.parse().ok())
            .collect::<Option<Vec<u16>>>()
            .map(Some),
    }
}

/// Encodes fields: the length, then each field with a zero byte at its end.
fn frame(fields: &[OsString]) -> io::Result<Vec<u8>> {
    let mut bytes = vec![b' '; LENGTH];
    for field in fields {
        if field.as_bytes().contains(&0) {
            return Err(invalid(
                "a zero byte in the command, its arguments or its environment",
            ));
        }
        bytes.extend_from_slice(field.as_bytes());
        bytes.push(0);
    }
    let length = bytes.len() - LENGTH;
    if length > LONGEST {
        return Err(invalid(
            "the command, its arguments and its environment are too long",
        ));
    }
    for (to, from) in bytes.iter_mut().zip(format!("{length:0LENGTH$x}").bytes()) {
        *to = from;
    }
    Ok(bytes)
}

/// Reads fields, and not a byte beyond them.
fn fields(mut from: impl io::Read) -> io::Result<Vec<OsString>> {
    let mut head = [0; LENGTH];
    from.read_exact(&mut head)?;
    let length = std::str::from_utf8(&head)
        .ok()
        .and_then(|head| usize::from_str_radix(head, 16).ok());
    let length = length
        .filter(|length| *length <= LONGEST)
        .ok_or_else(|| invalid("no length"))?;
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes)?;
    let fields = bytes
        .strip_suffix(&[0])
        .ok_or_else(|| invalid("a field is cut"))?;
    Ok(fields
        .split(|byte| *byte == 0)
        .map(|field| OsString::from_vec(field.to_vec()))
        .collect())
}

/// Unbuffered standard input: bytes after an order belong to another reader.
pub(crate) struct Unbuffered;

impl io::Read for Unbuffered {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(rustix::stdio::stdin(), buffer)?)
    }
}

fn number<T: std::str::FromStr>(text: &OsStr) -> Option<T> {
    text.to_str()?.parse().ok()
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

#[cfg(test)]
mod tests {
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
            let mut bytes = order.encode().unwrap();
            bytes.extend_from_slice(b"input of the server");
            let mut rest = bytes.as_slice();
            assert!(Order::read(&mut rest).unwrap() == order);
            assert_eq!(rest, b"input of the server");
        }
    }

    #[test]
    fn order_with_a_zero_byte_is_refused() {
        let zero = |order: Order| order.encode().unwrap_err().kind();
        assert_eq!(
            zero(Order {
                command: "a\0b".into(),
                ..order()
            }),
            io::ErrorKind::InvalidInput
        );
        assert_eq!(
            zero(Order {
                env: vec![("A".into(), "\0".into())],
                ..order()
            }),
            io::ErrorKind::InvalidInput
        );
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
            let mut bytes = encode_sandbox(&sandbox).unwrap();
            bytes.extend_from_slice(b"order");
            let mut rest = bytes.as_slice();
            assert_eq!(read_sandbox(&mut rest).unwrap(), sandbox);
            assert_eq!(rest, b"order");
        }
    }

    #[test]
    fn sandbox_that_cannot_be_read_is_an_error() {
        for fields in [
            &["x", "", "", ""][..],
            &["", "", ""],
            &["", "", "", "", "any"],
            &["", "", "", "", "any", "any", "1"],
            &["", "", "", "", "any", "any", "1", "1", "/usr"],
            &["", "", "", "", "80,x", "any", "0", "0"],
        ] {
            let fields: Vec<OsString> = fields.iter().map(OsString::from).collect();
            assert!(
                read_sandbox(frame(&fields).unwrap().as_slice()).is_err(),
                "{fields:?}"
            );
        }
    }

    #[test]
    fn cut_order_is_an_error() {
        let bytes = order().encode().unwrap();
        for end in 0..bytes.len() {
            assert!(Order::read(&bytes[..end]).is_err(), "{end}");
        }
        assert!(Order::read(&b"00000000"[..]).is_err());
        assert!(Order::read(&b"ffffffff"[..]).is_err());
    }
}
