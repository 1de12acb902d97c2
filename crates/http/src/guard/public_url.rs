//! A listener's public URL.

use std::fmt;
use std::sync::Arc;

use fanlight_config::settings::split_path;

use super::{Host, HostPort, normalized};

/// A listener's public URL: `https://mcp.example.com`, with a path if a proxy removes that from
/// requests. It is configured, and never made from a request's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicUrl {
    /// Without a final slash. The origin is in lower case, without a port that the scheme implies.
    text: Arc<str>,
    /// The length of the origin.
    origin: usize,
    pub(super) host: Host,
}

impl PublicUrl {
    /// Parses a URL with scheme, host, port and path; `None` if `text` has anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let (origin, path) = split_path(text)?;
        let origin = normalized(origin);
        let authority = origin
            .strip_prefix("https://")
            .or_else(|| origin.strip_prefix("http://"))?;
        let HostPort { host, .. } = HostPort::parse(authority)?;
        let (text, origin) = ([&*origin, path].concat().into(), origin.len());
        Some(Self { text, origin, host })
    }

    /// The whole URL.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The scheme and authority, and the path, which is empty or begins with a slash. The first is
    /// the origin of the listener's pages.
    #[must_use]
    pub fn parts(&self) -> (&str, &str) {
        self.text.split_at(self.origin)
    }

    /// Whether it begins with `https`.
    pub fn is_https(&self) -> bool {
        self.text.starts_with("https:")
    }

    /// The URL of `path`, which begins with a slash.
    pub fn join(&self, path: &str) -> String {
        format!("{}{path}", self.text)
    }
}

impl fmt::Display for PublicUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_url_is_scheme_host_and_port() {
        for (text, url) in [
            ("https://MCP.example.com:443/", "https://mcp.example.com"),
            ("http://[::1]:8080", "http://[::1]:8080"),
            ("HTTPS://X:443/A/b/", "https://x/A/b"),
            (
                "https://mcp.example.com:8443",
                "https://mcp.example.com:8443",
            ),
        ] {
            assert_eq!(PublicUrl::parse(text).unwrap().as_str(), url);
        }
        for wrong in [
            "mcp.example.com",
            "ftp://x",
            "https://",
            "https://x//a",
            "https://x/a/../b",
            "https://x/a;b",
            "https://x/a%2fb",
            "https://x/a?y",
            "https://ann@x",
            "https://x?y",
            "",
        ] {
            assert_eq!(PublicUrl::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn path_is_appended() {
        let url = PublicUrl::parse("https://mcp.example.com").unwrap();
        assert_eq!(url.join("/mcp"), "https://mcp.example.com/mcp");
        assert!(url.is_https());
        let url = PublicUrl::parse("https://mcp.example.com/gate/").unwrap();
        assert_eq!(url.join("/mcp"), "https://mcp.example.com/gate/mcp");
        assert_eq!(url.parts(), ("https://mcp.example.com", "/gate"));
    }
}
