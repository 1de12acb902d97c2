//! References to secrets outside of the configuration: `${file:…}`, `${exec:…}`, `${keyring:…}`.

use std::time::Duration;

/// The default time for which a program's output is used.
const EXEC_LASTS: Duration = Duration::from_secs(5 * 60);

/// The place of a secret.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SecretReference {
    /// A file: `file:PATH`. A line break at its end does not count.
    File {
        /// The path, relative to the folder of the file with the reference.
        path: String,
    },
    /// A program's standard output: `exec:COMMAND` or `exec:10m COMMAND`. A line break at its end
    /// does not count.
    Exec {
        /// The program and its arguments, quoted if they have spaces; there is no shell.
        command: Vec<String>,
        /// The time for which the output is used.
        lasts: Duration,
    },
    /// The system's keyring: `keyring:SERVICE/ACCOUNT`.
    Keyring {
        /// The service.
        service: String,
        /// The account.
        account: String,
    },
}

impl SecretReference {
    /// Parses the text between `${` and `}`; `None` if it is no reference.
    ///
    /// # Errors
    ///
    /// The correct notation.
    pub(crate) fn read(text: &str) -> Option<Result<Self, &'static str>> {
        let (kind, rest) = text.split_once(':')?;
        Some(match kind {
            "file" => Some(Self::File { path: rest.to_owned() }).filter(|_| !rest.is_empty()).ok_or("write `${file:PATH}`"),
            "exec" => exec(rest).ok_or("write `${exec:COMMAND}`, or `${exec:10m COMMAND}` for an output that is good for 10 minutes; put words with spaces in quotes"),
            "keyring" => keyring(rest).ok_or("write `${keyring:SERVICE/ACCOUNT}`"),
            "user" => Err("`${user:SERVER}` can only be the whole value of a variable in `env` of a server with `command`"),
            _ => return None,
        })
    }
}

fn exec(text: &str) -> Option<SecretReference> {
    let mut command = shell_words::split(text).ok()?;
    let lasts = command
        .first()
        .and_then(|first| humantime::parse_duration(first).ok());
    if lasts.is_some() {
        command.remove(0);
    }
    let is_whole = command.first().is_some_and(|program| !program.is_empty());
    is_whole.then(|| SecretReference::Exec {
        command,
        lasts: lasts.unwrap_or(EXEC_LASTS),
    })
}

fn keyring(text: &str) -> Option<SecretReference> {
    let (service, account) = text
        .rsplit_once('/')
        .filter(|(service, account)| !service.is_empty() && !account.is_empty())?;
    Some(SecretReference::Keyring {
        service: service.to_owned(),
        account: account.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(text: &str) -> SecretReference {
        SecretReference::read(text).unwrap().unwrap()
    }

    #[test]
    fn references_name_their_place() {
        assert_eq!(
            reference("file:a b"),
            SecretReference::File { path: "a b".into() }
        );
        let exec = |words: &[&str], seconds| SecretReference::Exec {
            command: words.iter().map(|word| (*word).to_owned()).collect(),
            lasts: Duration::from_secs(seconds),
        };
        assert_eq!(
            reference("exec:op read 'a b'"),
            exec(&["op", "read", "a b"], 300)
        );
        assert_eq!(reference("exec:90s op"), exec(&["op"], 90));
        let keyring = SecretReference::Keyring {
            service: "a/b".into(),
            account: "c".into(),
        };
        assert_eq!(reference("keyring:a/b/c"), keyring);
    }

    #[test]
    fn references_that_name_nothing_are_refused() {
        for wrong in [
            "file:",
            "exec:",
            "exec:10m",
            "exec:'open",
            "exec:''",
            "keyring:a",
            "keyring:/a",
            "keyring:a/",
        ] {
            assert!(SecretReference::read(wrong).unwrap().is_err(), "{wrong}");
        }
        assert!(SecretReference::read("input:a").is_none() && SecretReference::read("A").is_none());
    }
}
