//! The transport to a server.

use std::fmt;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use percent_encoding::percent_decode_str;
use url::Url;

use crate::settings::Secret;

/// The transport to a server. `Debug` shows no argument, no value of a variable or header, and no
/// URL path.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Transport {
    /// A child process that speaks over its standard input and output.
    Stdio {
        /// The program, looked up in `PATH` if it has no slash.
        command: String,
        /// The arguments.
        args: Vec<String>,
        /// Variables set in addition to the inherited ones, in the order of the file.
        env: Vec<(String, Secret)>,
        /// The working directory; Fanlight's own if absent. In the file it may be relative to the
        /// file's folder.
        cwd: Option<PathBuf>,
    },
    /// A Streamable HTTP server. Fanlight recognizes one with the deprecated HTTP+SSE transport.
    Http {
        /// The endpoint: `http` or `https`, with a host.
        url: String,
        /// Headers of each request, in the file's order, with names in lower case. Headers of the
        /// protocol itself are ignored.
        headers: Vec<(String, Secret)>,
    },
    /// A server that is configured for the deprecated HTTP+SSE transport of 2024-11-05. If it has
    /// another transport, it is treated like [`Transport::Http`].
    Sse {
        /// The URL of its event stream, as for [`Transport::Http`].
        url: String,
        /// Headers of each request, as for [`Transport::Http`].
        headers: Vec<(String, Secret)>,
    },
    /// A server whose configuration lacks a value, such as an unset variable. It cannot be used,
    /// other servers can.
    Incomplete {
        /// Whether the server would be a process.
        is_process: bool,
        /// The missing value, for operators.
        why: String,
    },
}

impl Transport {
    /// Whether both transports lead to the same server, although the secrets in headers may have
    /// been rotated.
    pub fn is_same_server(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Http { url, headers },
                Self::Http {
                    url: other_url,
                    headers: others,
                },
            )
            | (
                Self::Sse { url, headers },
                Self::Sse {
                    url: other_url,
                    headers: others,
                },
            ) => {
                let is_same =
                    |((name, value), (other_name, other)): (
                        &(String, Secret),
                        &(String, Secret),
                    )| { name == other_name && value.is_written_as(other) };
                url == other_url
                    && headers.len() == others.len()
                    && headers.iter().zip(others).all(is_same)
            }
            _ => self == other,
        }
    }

    /// The same transport at another URL, if it uses HTTP.
    #[must_use]
    pub fn with_url(self, url: &str) -> Self {
        match self {
            Self::Http { headers, .. } => Self::Http {
                url: url.to_owned(),
                headers,
            },
            Self::Sse { headers, .. } => Self::Sse {
                url: url.to_owned(),
                headers,
            },
            other => other,
        }
    }

    /// The headers of each request, if the transport uses HTTP.
    pub fn headers(&self) -> Option<&[(String, Secret)]> {
        match self {
            Self::Http { headers, .. } | Self::Sse { headers, .. } => Some(headers),
            Self::Stdio { .. } | Self::Incomplete { .. } => None,
        }
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdio {
                command,
                args,
                env,
                cwd,
            } => f
                .debug_struct("Stdio")
                .field("command", command)
                .field("args", &format_args!("[{} hidden]", args.len()))
                .field("env", env)
                .field("cwd", cwd)
                .finish(),
            Self::Http { url, headers } | Self::Sse { url, headers } => f
                .debug_struct(if matches!(self, Self::Sse { .. }) {
                    "Sse"
                } else {
                    "Http"
                })
                .field("url", &format_args!("{}", origin_of(url)))
                .field("headers", headers)
                .finish(),
            Self::Incomplete { is_process, why } => f
                .debug_struct("Incomplete")
                .field("is_process", is_process)
                .field("why", why)
                .finish(),
        }
    }
}

/// The scheme, host and port of a URL; user information, path and query may contain secrets.
pub fn origin_of(url: &str) -> String {
    match Url::parse(url) {
        Ok(url) if url.has_host() => url.origin().ascii_serialization(),
        _ => "***".to_owned(),
    }
}

/// Splits user information off a URL, as a value of `Authorization`.
#[must_use]
pub fn split_credentials(mut url: Url) -> (Url, Option<HeaderValue>) {
    if url.username().is_empty() && url.password().is_none() {
        return (url, None);
    }
    let mut plain: Vec<u8> = percent_decode_str(url.username()).collect();
    plain.push(b':');
    plain.extend(percent_decode_str(url.password().unwrap_or_default()));
    let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(plain))).ok();
    value.iter_mut().for_each(|value| value.set_sensitive(true));
    // These fail only for URLs without a host, which HTTP URLs always have.
    let _: (Result<_, _>, Result<_, _>) = (url.set_username(""), url.set_password(None));
    (url, value)
}

/// The origin of a URL, and its path without a slash at the end. `None` if the path could mean
/// something else to a browser or in a header: only letters, digits, `-`, `.`, `_` and `~`.
#[must_use]
pub fn split_path(url: &str) -> Option<(&str, &str)> {
    let start = url.find("://")? + 3;
    let end = url
        .get(start..)?
        .find('/')
        .map_or(url.len(), |at| start + at);
    let (origin, path) = url.split_at(end);
    let path = path.trim_end_matches('/');
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let is_plain = |part: &str| !matches!(part, "" | "." | "..") && part.bytes().all(fits);
    let is_path = path.split('/').skip(1).all(is_plain);
    is_path.then_some((origin, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_form_shows_no_secret() {
        let stdio = Transport::Stdio {
            command: "run".into(),
            args: vec!["--key=s3cret".into()],
            env: vec![("TOKEN".into(), Secret::new("s3cret"))],
            cwd: None,
        };
        let url = "https://me:s3cret@host/s3cret?key=s3cret";
        let headers = || vec![("authorization".into(), Secret::new("s3cret"))];
        let http = Transport::Http {
            url: url.into(),
            headers: headers(),
        };
        let sse = Transport::Sse {
            url: url.into(),
            headers: headers(),
        };
        let shown = format!("{stdio:?} {http:?} {sse:?} {}", Secret::new("s3cret"));
        assert!(!shown.contains("s3cret"), "{shown}");
        assert!(
            shown.contains("TOKEN") && shown.contains("https://host"),
            "{shown}"
        );
        assert_eq!(origin_of("not a url with s3cret"), "***");
    }
}
