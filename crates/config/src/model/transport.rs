//! How a backend is reached.

use std::fmt;
use std::path::PathBuf;

use super::secret::Secret;
use super::values::url_without_secrets;

/// How a backend is reached. `Debug` shows no argument, no value of a variable or header, and no URL path.
#[derive(Clone)]
pub enum Transport {
    /// A child process that speaks over its standard input and output.
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Variables set in addition to the inherited ones, in the order of the file.
        env: Vec<(String, Secret)>,
        /// Its folder; a relative one in the file is relative to the file's folder.
        cwd: Option<PathBuf>,
    },
    /// A Streamable HTTP server.
    Http {
        /// Its endpoint; `http` or `https`, with a host.
        url: String,
        /// Headers sent with each request, in the order of the file; names and values are valid, names in lower case.
        headers: Vec<(String, Secret)>,
    },
    /// A server of the deprecated HTTP+SSE transport of 2024-11-05.
    Sse {
        /// Where its event stream is; as for [`Transport::Http`].
        url: String,
        /// Headers sent with each request; as for [`Transport::Http`].
        headers: Vec<(String, Secret)>,
    },
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdio { command, args, env, cwd } => f
                .debug_struct("Stdio")
                .field("command", command)
                .field("args", &format_args!("[{} hidden]", args.len()))
                .field("env", env)
                .field("cwd", cwd)
                .finish(),
            Self::Http { url, headers } | Self::Sse { url, headers } => f
                .debug_struct(if matches!(self, Self::Sse { .. }) { "Sse" } else { "Http" })
                .field("url", &format_args!("{}", url_without_secrets(url)))
                .field("headers", headers)
                .finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::secret::SealKey;

    #[test]
    fn debug_form_shows_no_secret() {
        let stdio = Transport::Stdio {
            command: "run".to_owned(),
            args: vec!["--key=s3cret".to_owned()],
            env: vec![("TOKEN".to_owned(), Secret::new("s3cret"))],
            cwd: None,
        };
        let http = Transport::Http {
            url: "https://me:s3cret@host/s3cret?key=s3cret".to_owned(),
            headers: vec![("authorization".to_owned(), Secret::new("s3cret"))],
        };
        let shown = format!("{stdio:?} {http:?} {} {:?}", Secret::new("s3cret"), SealKey::new([7; 32]));
        assert!(!shown.contains("s3cret") && !shown.contains('7'), "{shown}");
        assert!(shown.contains("TOKEN") && shown.contains("https://host/***"), "{shown}");
    }
}
