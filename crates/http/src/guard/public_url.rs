//! A listener's public URL.

use std::fmt;
use std::sync::Arc;

use super::{Host, HostPort, normalized};

/// A listener's public URL, without a path: `https://mcp.example.com`. It is configured, and never
/// made from a request's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicUrl {
    /// In lower case, without a final slash, and without a port that the scheme implies.
    text: Arc<str>,
    pub(super) host: Host,
}

impl PublicUrl {
    /// Parses a URL with scheme, host and port; `None` if `text` has anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let text = normalized(text);
        let authority = text
            .strip_prefix("https://")
            .or_else(|| text.strip_prefix("http://"))?;
        let HostPort { host, .. } = HostPort::parse(authority)?;
        Some(Self {
            text: text.into(),
            host,
        })
    }

    /// The scheme and authority, which are also the origin of its pages: `https://mcp.example.com`.
    pub fn as_str(&self) -> &str {
        &self.text
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
            "https://x/mcp",
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
    }
}
