//! Texts of the options of `auth`: URLs, claims, headers, networks, scopes.

use std::net::IpAddr;

use http::HeaderName;
use ipnet::IpNet;
use serde_json::json;
use url::Url;

use crate::definition::Visible;
use crate::model::values::{is_path, url_without_secrets};
use crate::option::kind::{Parsed, checked};
use crate::report::mask::HIDDEN;
use crate::settings::{Secret, is_loopback};

/// The identifier of an issuer: "a URL that uses the https scheme and has no query or fragment
/// components" (RFC 8414, 2). Issuers are compared as text, so the text stays unchanged.
pub(crate) const ISSUER: Parsed<String> = checked!(
    |text| Url::parse(text)
        .is_ok_and(|url| is_safe(&url) && url.query().is_none() && url.fragment().is_none()),
    "is not the identifier of an issuer",
    "write the https URL that its tokens have as `iss`, without query; http only on this machine"
);

/// The URL of a hook or of an issuer's endpoint. Its path and query may hold a secret.
pub(crate) const URI: Parsed<String> = checked!(
    Visible::Authority,
    |text| Url::parse(text)
        .is_ok_and(|url| is_safe(&url) && url.fragment().is_none())
        .then(|| text.to_owned()),
    "this is not a URL that can be used here",
    "write an https URL; http only on this machine",
    |text| json!(url_without_secrets(text))
);

/// Whether the URL is only requested over TLS or within this machine, and contains no password.
pub(crate) fn is_safe(url: &Url) -> bool {
    let is_local = url.host_str().is_some_and(is_loopback);
    let is_plain = url.username().is_empty() && url.password().is_none();
    is_plain && (url.scheme() == "https" || (url.scheme() == "http" && is_local))
}

/// A text that is not empty.
pub(crate) const TEXT: Parsed<String> = checked!(
    |text| !text.is_empty(),
    "this text is empty",
    "write a text, or remove it"
);

/// The name of a claim, or a JSON Pointer (RFC 6901).
pub(super) const CLAIM: Parsed<String> = Parsed { ..TEXT };

/// The path of a file.
pub(crate) const FILE: Parsed<String> = checked!(
    is_path,
    "this is not the path of a file",
    "write a path, such as `keys.yaml`"
);

/// A secret of a client at an issuer.
pub(crate) const CLIENT_SECRET: Parsed<Secret> = checked!(
    Visible::Nothing,
    |text| (!text.is_empty()).then(|| Secret::new(text)),
    "this secret is empty",
    "write the secret that the issuer has given to Fanlight",
    |_| json!(HIDDEN)
);

/// The name of a header field (RFC 9110, 5.1), in lower case.
pub(super) const HEADER: Parsed<String> = checked!(
    Visible::All,
    |text| {
        let name = HeaderName::from_bytes(text.as_bytes()).ok()?;
        let used = [
            "authorization",
            "connection",
            "content-length",
            "cookie",
            "host",
            "origin",
            "transfer-encoding",
        ];
        (!used.contains(&name.as_str())).then(|| name.to_string())
    },
    "cannot be used as such a header",
    "write the name of a header that the proxy sets, such as `X-Forwarded-User`",
    |name| json!(name)
);

/// A network (CIDR), or one address.
pub(crate) const NETWORK: Parsed<IpNet> = checked!(
    Visible::All,
    |text| {
        let address = || text.parse::<IpAddr>().ok().map(IpNet::from);
        let network = text.parse().ok().or_else(address);
        network.map(|network| network.trunc())
    },
    "is not a network",
    "write an address with the length of its prefix, such as `10.0.0.0/8` or `::1/128`, or one address",
    |network| json!(network.to_string())
);

/// A scope (RFC 6749, 3.3).
pub(crate) const SCOPE: Parsed<String> = checked!(
    |text| !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\')),
    "is not a scope",
    "write visible ASCII characters without spaces, quotes and backslashes; several scopes as a list"
);
