//! What a guard is to start, as bytes: a length, and fields that each end with a zero byte, which none can hold.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;
use std::time::Duration;

/// Digits of the length in front.
const LENGTH: usize = 8;
/// More than a process can be started with.
const LONGEST: usize = 16 << 20;

/// What a guard starts.
#[derive(Clone, PartialEq, Eq)]
pub struct Order {
    /// The process that the server is for; the guard ends with it.
    pub parent: u32,
    /// How long the server and its descendants have between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// The program, looked up in the `PATH` of `env` if it has no slash.
    pub command: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Its whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// Its working directory; the guard's own if absent.
    pub cwd: Option<PathBuf>,
}

impl Order {
    /// The bytes to send.
    ///
    /// # Errors
    ///
    /// If a text holds a zero byte, with which no process can be started, or if they are too many.
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
        let mut bytes = vec![b' '; LENGTH];
        for field in fields {
            if field.as_bytes().contains(&0) {
                return Err(invalid("a zero byte in the command, its arguments or its environment"));
            }
            bytes.extend_from_slice(field.as_bytes());
            bytes.push(0);
        }
        let length = bytes.len() - LENGTH;
        if length > LONGEST {
            return Err(invalid("the command, its arguments and its environment are too long"));
        }
        for (to, from) in bytes.iter_mut().zip(format!("{length:0LENGTH$x}").bytes()) {
            *to = from;
        }
        Ok(bytes)
    }

    /// Reads an order, and not a byte beyond it.
    pub(crate) fn read(mut from: impl io::Read) -> io::Result<Self> {
        let mut head = [0; LENGTH];
        from.read_exact(&mut head)?;
        let length = std::str::from_utf8(&head).ok().and_then(|head| usize::from_str_radix(head, 16).ok());
        let length = length.filter(|length| *length <= LONGEST).ok_or_else(|| invalid("no length"))?;
        let mut bytes = vec![0; length];
        from.read_exact(&mut bytes)?;
        Self::decode(&bytes).ok_or_else(|| invalid("a field is missing"))
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = bytes.strip_suffix(&[0])?.split(|byte| *byte == 0);
        let mut text = || Some(OsString::from_vec(fields.next()?.to_vec()));
        let parent = number(&text()?)?;
        let grace = Duration::from_millis(number(&text()?)?);
        let cwd = Some(text()?).filter(|cwd| !cwd.is_empty()).map(PathBuf::from);
        let command = text()?;
        let args = (0..number::<usize>(&text()?)?).map(|_| text()).collect::<Option<_>>()?;
        let mut env = Vec::new();
        while let Some(name) = text() {
            env.push((name, text()?));
        }
        Some(Self { parent, grace, command, args, env, cwd })
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
        for order in [order(), Order { cwd: None, args: Vec::new(), env: Vec::new(), ..order() }] {
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
        assert_eq!(zero(Order { command: "a\0b".into(), ..order() }), io::ErrorKind::InvalidInput);
        assert_eq!(zero(Order { env: vec![("A".into(), "\0".into())], ..order() }), io::ErrorKind::InvalidInput);
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
