//! Texts of the options of `auth`: URLs, claims, headers, networks, scopes.

use std::net::IpAddr;

use crate::settings::{Secret, is_loopback};
use ipnet::IpNet;
use serde_json::json;
use url::Url;

use crate::definition::Visible;
use crate::model::values::url_without_secrets;
use crate::option::kind::Parsed;
use crate::report::mask::HIDDEN;

/// The identifier of an issuer: "a URL that uses the https scheme and has no query or fragment
/// components" (RFC 8414, 2). Issuers are compared as text, so the text stays unchanged.
pub(crate) const ISSUER: Parsed<String> = Parsed {
    visible: Visible::All,
    parse: |reader, text| {
        let is_issuer = Url::parse(&text.value)
            .is_ok_and(|url| is_safe(&url) && url.query().is_none() && url.fragment().is_none());
        if !is_issuer {
            let help = "write the https URL that its tokens have as `iss`, without query; http only on this machine";
            reader.error(
                text.span,
                format!("{} is not the identifier of an issuer", text.shown()),
                help,
            );
        }
        is_issuer.then_some(text.value)
    },
    show: |text| json!(text),
};

/// The URL of a hook or of an issuer's endpoint. Its path and query may hold a secret.
pub(crate) const URI: Parsed<String> = Parsed {
    visible: Visible::Authority,
    parse: |reader, text| {
        let is_url =
            Url::parse(&text.value).is_ok_and(|url| is_safe(&url) && url.fragment().is_none());
        if !is_url {
            let help = "write an https URL; http only on this machine";
            reader.error(text.span, "this is not a URL that can be used here", help);
        }
        is_url.then_some(text.value)
    },
    show: |text| json!(url_without_secrets(text)),
};

/// Whether the URL is only requested over TLS or within this machine, and contains no password.
pub(crate) fn is_safe(url: &Url) -> bool {
    let is_local = url.host_str().is_some_and(is_loopback);
    let is_plain = url.username().is_empty() && url.password().is_none();
    is_plain && (url.scheme() == "https" || (url.scheme() == "http" && is_local))
}

/// A text that is not empty.
pub(crate) const TEXT: Parsed<String> = Parsed {
    visible: Visible::All,
    parse: |reader, text| {
        if text.value.is_empty() {
            reader.error(
                text.span,
                "this text is empty",
                "write a text, or remove it",
            );
        }
        Some(text.value).filter(|text| !text.is_empty())
    },
    show: |text| json!(text),
};

/// The name of a claim, or a JSON Pointer (RFC 6901).
pub(super) const CLAIM: Parsed<String> = Parsed { ..TEXT };

/// The path of a file.
pub(crate) const FILE: Parsed<String> = Parsed {
    visible: Visible::All,
    parse: |reader, text| {
        let is_path = !text.value.is_empty() && !text.value.contains('\0');
        if !is_path {
            reader.error(
                text.span,
                "this is not the path of a file",
                "write a path, such as `keys.yaml`",
            );
        }
        is_path.then_some(text.value)
    },
    show: |path| json!(path),
};

/// A secret of a client at an issuer.
pub(crate) const CLIENT_SECRET: Parsed<Secret> = Parsed {
    visible: Visible::Nothing,
    parse: |reader, text| {
        if text.value.is_empty() {
            reader.error(
                text.span,
                "this secret is empty",
                "write the secret that the issuer has given to Fanlight",
            );
            return None;
        }
        Some(Secret::new(text.value))
    },
    show: |_| json!(HIDDEN),
};

/// The name of a header field (RFC 9110, 5.1), in lower case.
pub(super) const HEADER: Parsed<String> = Parsed {
    visible: Visible::All,
    parse: |reader, text| {
        let is_token =
            |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let lower = text.value.to_ascii_lowercase();
        let used = [
            "authorization",
            "connection",
            "content-length",
            "cookie",
            "host",
            "origin",
            "transfer-encoding",
        ];
        let is_name =
            !lower.is_empty() && lower.bytes().all(is_token) && !used.contains(&lower.as_str());
        if !is_name {
            let help = "write the name of a header that the proxy sets, such as `X-Forwarded-User`";
            reader.error(
                text.span,
                format!("{} cannot be used as such a header", text.shown()),
                help,
            );
        }
        is_name.then_some(lower)
    },
    show: |name| json!(name),
};

/// A network (CIDR), or one address.
pub(crate) const NETWORK: Parsed<IpNet> = Parsed {
    visible: Visible::All,
    parse: |reader, text| {
        let address = || text.value.parse::<IpAddr>().ok().map(IpNet::from);
        let network: Option<IpNet> = text.value.parse().ok().or_else(address);
        if network.is_none() {
            let help = "write an address with the length of its prefix, such as `10.0.0.0/8` or `::1/128`, or one address";
            reader.error(
                text.span,
                format!("{} is not a network", text.shown()),
                help,
            );
        }
        network.map(|network| network.trunc())
    },
    show: |network| json!(network.to_string()),
};

/// A scope (RFC 6749, 3.3).
pub(crate) const SCOPE: Parsed<String> = Parsed {
    visible: Visible::All,
    parse: |reader, text| {
        let fits = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
        let is_scope = !text.value.is_empty() && text.value.bytes().all(fits);
        if !is_scope {
            let help = "write visible ASCII characters without spaces, quotes and backslashes; several scopes as a list";
            reader.error(text.span, format!("{} is not a scope", text.shown()), help);
        }
        is_scope.then_some(text.value)
    },
    show: |scope| json!(scope),
};
