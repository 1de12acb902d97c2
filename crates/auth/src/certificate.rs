//! TLS client certificates. The listener has verified that the client has the key, and that a
//! configured authority has signed the certificate. This module decides whom the certificate names.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fanlight_canonical::identity::{Identity, Source, Validity};
use fanlight_credentials::{Credentials, Denial};
use tokio_util::sync::CancellationToken;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;
use x509_parser::time::ASN1Time;
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

use crate::settings::user;

/// The issuer of these principals. All authorities in `tls.clientCa` share it, since the operator
/// trusts them equally.
const ISSUER: &str = "fanlight:certificate";
/// The length limit of a name in bytes; "SPIFFE implementations MUST support SPIFFE URIs up to 2048
/// bytes in length and MUST NOT generate URIs of length greater than 2048 bytes" (SPIFFE-ID, 2.3).
const MAX_NAME: usize = 2048;

/// The certificates of clients.
#[derive(Debug, Default)]
pub(crate) struct Certificates {
    /// Revokes all identities from certificates.
    pub(crate) revoked: CancellationToken,
}

impl Certificates {
    /// The identity in the connection's certificate; `None` without one.
    pub(crate) fn identity(
        &self,
        credentials: &Credentials<'_>,
    ) -> Option<Result<Arc<Identity>, Denial>> {
        let certificate = credentials.connection.certificate.as_deref()?;
        let identity = |(name, expires): (String, SystemTime)| {
            let validity = Validity {
                expires: Some(expires),
                revoked: self.revoked.clone(),
            };
            Arc::new(user(ISSUER, &name, Source::Certificate, validity))
        };
        Some(read(certificate, SystemTime::now()).map(identity))
    }
}

/// The name in a certificate, and when it expires.
fn read(der: &[u8], now: SystemTime) -> Result<(String, SystemTime), Denial> {
    let unreadable = || Denial::Invalid("the client certificate cannot be read".into());
    let (rest, certificate) = X509Certificate::from_der(der).map_err(|_| unreadable())?;
    if !rest.is_empty() {
        return Err(unreadable());
    }
    // A connection may outlast its certificate.
    let validity = certificate.validity();
    let (begins, expires) = moment(validity.not_before)
        .zip(moment(validity.not_after))
        .ok_or_else(unreadable)?;
    if now < begins || now >= expires {
        return Err(Denial::Invalid(
            "the client certificate has expired, or is not valid yet".into(),
        ));
    }
    let name = name(&certificate).ok_or_else(unreadable)?;
    let nameless = || {
        Denial::Invalid(
            "the client certificate must have one URI among its subject alternative names, or else \
             one DNS name, or else a subject"
                .into(),
        )
    };
    let name = name.filter(|name| !name.is_empty() && name.len() <= MAX_NAME);
    Ok((name.ok_or_else(nameless)?, expires))
}

/// The name of the principal: the only URI among the subject alternative names; without any, the
/// only DNS name; without either, the subject. No name of one kind is one of another. The outer
/// `None` means that the names cannot be read.
fn name(certificate: &X509Certificate<'_>) -> Option<Option<String>> {
    let names = match certificate.subject_alternative_name().ok()? {
        Some(extension) => &*extension.value.general_names,
        None => &[],
    };
    let (mut uris, mut hosts) = (Vec::new(), Vec::new());
    for name in names {
        match name {
            GeneralName::URI(uri) => uris.push(*uri),
            GeneralName::DNSName(host) => hosts.push(*host),
            // An unreadable name could be a second value.
            GeneralName::Invalid(..) => return None,
            _ => {}
        }
    }
    Some(match (&*uris, &*hosts) {
        ([], []) => subject(certificate.subject()),
        // DNS names are compared without regard to case (RFC 4343). A wildcard names many.
        ([], [host]) => Some(host.to_ascii_lowercase()).filter(|host| {
            host.bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        }),
        // A text that could be mistaken for another name when shown or logged names nobody.
        ([uri], _) => Some((*uri).to_owned()).filter(|uri| {
            uri.bytes().all(|byte| byte.is_ascii_graphic())
                && uri
                    .split_once(':')
                    .is_some_and(|(scheme, _)| !scheme.contains('='))
        }),
        _ => None,
    })
}

fn moment(time: ASN1Time) -> Option<SystemTime> {
    // A certificate that expired before 1970 has expired by any clock.
    UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(time.timestamp()).ok()?))
}

/// A distinguished name in the form of RFC 4514, in which different names have different texts;
/// `None` if a value cannot be read.
fn subject(name: &X509Name<'_>) -> Option<String> {
    let mut text = String::new();
    let names: Vec<_> = name.iter_rdn().collect();
    for (index, attributes) in names.into_iter().rev().enumerate() {
        text.push_str(if index > 0 { "," } else { "" });
        for (index, attribute) in attributes.iter().enumerate() {
            text.push_str(if index > 0 { "+" } else { "" });
            write_attribute(attribute, &mut text)?;
        }
    }
    Some(text)
}

/// The attributes with a short name (RFC 4514, 3).
const SHORT: [(&str, &str); 9] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.6", "C"),
    ("2.5.4.9", "STREET"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("0.9.2342.19200300.100.1.1", "UID"),
];

fn write_attribute(attribute: &AttributeTypeAndValue<'_>, text: &mut String) -> Option<()> {
    let kind = attribute.attr_type().to_id_string();
    match SHORT.iter().find(|(id, _)| *id == kind) {
        Some((_, short)) => text.push_str(short),
        None => text.push_str(&kind),
    }
    text.push('=');
    let value = attribute.as_str().ok()?;
    let last = value.chars().count().saturating_sub(1);
    for (index, c) in value.chars().enumerate() {
        match c {
            c if c.is_control() => {
                let mut buffer = [0; 4];
                // Writing to a string cannot fail.
                c.encode_utf8(&mut buffer)
                    .bytes()
                    .for_each(|byte| _ = write!(text, "\\{byte:02x}"));
            }
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' => text.extend(['\\', c]),
            ' ' | '#' if index == 0 => text.extend(['\\', c]),
            ' ' if index == last => text.extend(['\\', c]),
            c => text.push(c),
        }
    }
    Some(())
}

#[cfg(test)]
mod tests;
