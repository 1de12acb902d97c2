//! Texts with a meaning: addresses, paths, origins, hosts, keys and tokens. Each is checked and
//! normalized.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::settings::{Secret, split_path};
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::json;
use url::Url;

use super::secret::SealKey;
use crate::definition::Visible;
use crate::option::kind::Parsed;
use crate::option::reader::{Reader, Text};
use crate::report::mask::HIDDEN;

/// The minimum length of a token, since shorter ones can be guessed.
const MIN_TOKEN: usize = 16;

pub(crate) const fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

/// The path of an endpoint.
pub(crate) const PATH: Parsed<String> = Parsed {
    visible: Visible::All,
    parse: |reader, text| {
        let allowed = |c: char| c.is_ascii_graphic() && !"?#%\"<>\\^`{|}".contains(c);
        let is_path = text.value.starts_with('/') && text.value.chars().all(allowed);
        let help =
            "write a path that starts with `/`, such as `/mcp`, without query, spaces or `%`";
        or_error(
            is_path.then(|| text.value.clone()),
            reader,
            &text,
            "is not the path of an endpoint",
            help,
        )
    },
    show: |path| json!(path),
};

/// The path of a file, with `*`.
pub(crate) const PATTERN: Parsed<String> = Parsed {
    visible: Visible::All,
    parse: |reader, text| {
        let is_path = !text.value.is_empty() && !text.value.contains('\0');
        let help = "write the path of a file, such as `conf.d/*.yaml`";
        or_error(
            is_path.then(|| text.value.clone()),
            reader,
            &text,
            "is not the path of a file",
            help,
        )
    },
    show: |path| json!(path),
};

/// A value of `Origin`: `scheme://host[:port]` in lower case without a default port,
/// `http://localhost:*`, or `*`.
pub(crate) const ORIGIN: Parsed<String> = Parsed {
    visible: Visible::All,
    parse: |reader, text| {
        let origin = if text.value == "*" {
            Some("*".to_owned())
        } else {
            origin(&text.value)
        };
        let help = "write scheme and host without a path, such as `https://app.example.com`, `http://localhost:*` for pages of \
                    this machine, or `*` for any";
        or_error(origin, reader, &text, "is not an origin", help)
    },
    show: |origin| json!(origin),
};

/// A value of `Host`: `host` (any port) or `host:port` in lower case, or `*`.
pub(crate) const HOST: Parsed<String> = Parsed {
    visible: Visible::All,
    parse: |reader, text| {
        let lower = text.value.to_ascii_lowercase();
        let is_host = !lower.contains(['/', '?', '#', '@', '\\'])
            && !lower.ends_with(':')
            && Url::parse(&format!("http://{lower}")).is_ok_and(|url| url.has_host());
        let help = "write a host with or without a port, such as `mcp.example.com` or `mcp.example.com:8080`, or `*` for any";
        or_error(
            (lower == "*" || is_host).then_some(lower),
            reader,
            &text,
            "is not a host",
            help,
        )
    },
    show: |host| json!(host),
};

/// The URL of a listener without a path: `scheme://host[:port]` in lower case, without a default
/// port.
pub(crate) const PUBLIC_URL: Parsed<String> = Parsed {
    visible: Visible::Authority,
    parse: |reader, text| {
        let is_url = |url: &String| {
            (url.starts_with("http://") || url.starts_with("https://")) && !url.ends_with(":*")
        };
        let parts = split_path(&text.value);
        let url = parts.and_then(|(own, path)| Some(origin(own).filter(is_url)? + path));
        if url.is_none() {
            let help = "write scheme and host, a port if clients need it, and the prefix of a proxy if it removes one, such as \
                        `https://example.com/mcp-gateway`: no query or user name";
            // The message does not repeat the text, which may hold a password in the wrong place.
            reader.error(text.span, "this is not the URL of a listener", help);
        }
        url
    },
    show: |url| json!(url),
};

/// A key of 32 bytes.
pub(crate) const KEY: Parsed<SealKey> = Parsed {
    visible: Visible::Nothing,
    parse: |reader, text| {
        let key = decode_key(&text.value);
        if key.is_none() {
            let help = "write 32 bytes as base64 or as 64 hexadecimal digits; `openssl rand -base64 32` makes a key";
            reader.error(text.span, "this is not a key of 32 bytes", help);
        }
        key.map(SealKey::new)
    },
    show: |_| json!(HIDDEN),
};

/// A bearer token.
pub(crate) const TOKEN: Parsed<Secret> = Parsed {
    visible: Visible::Nothing,
    parse: |reader, text| {
        if text.value.len() >= MIN_TOKEN && text.value.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Some(Secret::new(text.value));
        }
        let help =
            "write 16 visible ASCII characters or more; `openssl rand -hex 32` makes a token";
        reader.error(text.span, "this token is too easy to guess", help);
        None
    },
    show: |_| json!(HIDDEN),
};

/// The scheme and authority of a URL without user information; paths and queries of MCP endpoints
/// often hold tokens.
pub(crate) fn url_without_secrets(url: &str) -> String {
    match Url::parse(url) {
        Ok(url) => format!("{}/***", url.origin().ascii_serialization()),
        Err(_) => HIDDEN.to_owned(),
    }
}

fn or_error<T>(
    value: Option<T>,
    reader: &mut Reader<'_>,
    text: &Text,
    message: &str,
    help: &str,
) -> Option<T> {
    if value.is_none() {
        reader.error(text.span, format!("{} {message}", text.shown()), help);
    }
    value
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
        let digit = |c: char| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let digits: Vec<u8> = text.chars().map(digit).collect::<Option<_>>()?;
        let bytes: Vec<u8> = digits
            .as_chunks::<2>()
            .0
            .iter()
            .map(|[high, low]| high << 4 | low)
            .collect();
        return bytes.try_into().ok();
    }
    let config =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    [&alphabet::STANDARD, &alphabet::URL_SAFE]
        .into_iter()
        .find_map(|alphabet| GeneralPurpose::new(alphabet, config).decode(text).ok())
        .and_then(|bytes| bytes.try_into().ok())
}
