//! Texts with a meaning: addresses, paths, origins, hosts, keys and tokens. Each is checked and
//! normalized.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine as _, alphabet};
use data_encoding::HEXLOWER_PERMISSIVE;
use serde_json::json;
use url::Url;

use crate::definition::Visible;
use crate::option::kind::{Parsed, checked};
use crate::report::mask::HIDDEN;
use crate::settings::{Secret, split_path};

/// The minimum length of a token, since shorter ones can be guessed.
const MIN_TOKEN: usize = 16;

pub(crate) const fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

/// Any text.
pub(crate) const ANY: Parsed<String> = Parsed {
    visible: Visible::All,
    parse: |_, text| Some(text.value),
    show: |text| json!(text),
};

/// The path of an endpoint.
pub(crate) const PATH: Parsed<String> = checked!(
    |text| text.starts_with('/')
        && text
            .chars()
            .all(|c| c.is_ascii_graphic() && !"?#%\"<>\\^`{|}".contains(c)),
    "is not the path of an endpoint",
    "write a path that starts with `/`, such as `/mcp`, without query, spaces or `%`"
);

/// The path of a file, with `*`.
pub(crate) const PATTERN: Parsed<String> = checked!(
    is_path,
    "is not the path of a file",
    "write the path of a file, such as `conf.d/*.yaml`"
);

/// A value of `Origin`: `scheme://host[:port]` in lower case without a default port,
/// `http://localhost:*`, or `*`.
pub(crate) const ORIGIN: Parsed<String> = checked!(
    Visible::All,
    |text| if text == "*" {
        Some("*".to_owned())
    } else {
        origin(text)
    },
    "is not an origin",
    "write scheme and host without a path, such as `https://app.example.com`, `http://localhost:*` for pages of \
     this machine, or `*` for any",
    |origin| json!(origin)
);

/// A value of `Host`: `host` (any port) or `host:port` in lower case, or `*`.
pub(crate) const HOST: Parsed<String> = checked!(
    Visible::All,
    |text| {
        let lower = text.to_ascii_lowercase();
        let is_host = !lower.contains(['/', '?', '#', '@', '\\'])
            && !lower.ends_with(':')
            && Url::parse(&format!("http://{lower}")).is_ok_and(|url| url.has_host());
        (lower == "*" || is_host).then_some(lower)
    },
    "is not a host",
    "write a host with or without a port, such as `mcp.example.com` or `mcp.example.com:8080`, or `*` for any",
    |host| json!(host)
);

/// The URL of a listener without a path: `scheme://host[:port]` in lower case, without a default
/// port.
pub(crate) const PUBLIC_URL: Parsed<String> = checked!(
    Visible::Authority,
    |text| {
        let is_url = |url: &String| {
            (url.starts_with("http://") || url.starts_with("https://")) && !url.ends_with(":*")
        };
        let parts = split_path(text);
        parts.and_then(|(own, path)| Some(origin(own).filter(is_url)? + path))
    },
    // The message does not repeat the text, which may hold a password in the wrong place.
    "this is not the URL of a listener",
    "write scheme and host, a port if clients need it, and the prefix of a proxy if it removes one, such as \
     `https://example.com/mcp-gateway`: no query or user name",
    |url| json!(url)
);

/// A key of 32 bytes.
pub(crate) const KEY: Parsed<SealKey> = checked!(
    Visible::Nothing,
    |text| decode_key(text).map(SealKey::new),
    "this is not a key of 32 bytes",
    "write 32 bytes as base64 or as 64 hexadecimal digits; `openssl rand -base64 32` makes a key",
    |_| json!(HIDDEN)
);

/// A bearer token.
pub(crate) const TOKEN: Parsed<Secret> = checked!(
    Visible::Nothing,
    |text| {
        let is_strong = text.len() >= MIN_TOKEN && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_strong.then(|| Secret::new(text))
    },
    "this token is too easy to guess",
    "write 16 visible ASCII characters or more; `openssl rand -hex 32` makes a token",
    |_| json!(HIDDEN)
);

/// The scheme and authority of a URL without user information; paths and queries of MCP endpoints
/// often hold tokens.
pub(crate) fn url_without_secrets(url: &str) -> String {
    match Url::parse(url) {
        Ok(url) => format!("{}/***", url.origin().ascii_serialization()),
        Err(_) => HIDDEN.to_owned(),
    }
}

/// Whether a text can be the path of a file.
pub(crate) fn is_path(text: &str) -> bool {
    !text.is_empty() && !text.contains('\0')
}

fn origin(text: &str) -> Option<String> {
    if let Some(any_port) = text.strip_suffix(":*") {
        let is_loopback = [
            "http://localhost",
            "https://localhost",
            "http://127.0.0.1",
            "http://[::1]",
        ]
        .contains(&any_port);
        return is_loopback.then(|| text.to_owned());
    }
    let url = Url::parse(text).ok().filter(|url| {
        matches!(url.path(), "" | "/")
            && url.has_host()
            && url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none()
    })?;
    // Not `Url::origin`: that is opaque for schemes such as `vscode-webview:`.
    let port = url
        .port()
        .map(|port| format!(":{port}"))
        .unwrap_or_default();
    Some(format!("{}://{}{port}", url.scheme(), url.host_str()?))
}

fn decode_key(text: &str) -> Option<[u8; 32]> {
    if text.len() == 64 {
        let bytes = HEXLOWER_PERMISSIVE.decode(text.as_bytes());
        return bytes.ok()?.try_into().ok();
    }
    let config =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    [&alphabet::STANDARD, &alphabet::URL_SAFE]
        .into_iter()
        .find_map(|alphabet| GeneralPurpose::new(alphabet, config).decode(text).ok())
        .and_then(|bytes| bytes.try_into().ok())
}

/// A 256-bit key that seals what clients carry; `Debug` prints `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct SealKey([u8; 32]);

impl SealKey {
    /// A key of these bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes, for their one use.
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_form_of_a_key_shows_nothing_of_it() {
        assert_eq!(format!("{:?}", SealKey::new([7; 32])), "***");
    }
}
