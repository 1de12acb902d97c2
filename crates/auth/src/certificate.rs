//! TLS client certificates. The listener has verified that the client has the key, and that a
//! configured authority has signed the certificate. This module decides whom the certificate names.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fanlight_canonical::identity::{Claims, Identity, Principal, Scopes, Source, Validity};
use fanlight_credentials::{Credentials, Denial};
use tokio_util::sync::CancellationToken;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;
use x509_parser::time::ASN1Time;
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

use crate::settings::{CertificateName, CertificateSettings};

/// The issuer of these principals. All authorities in `tls.clientCa` share it, since the operator
/// trusts them equally.
const ISSUER: &str = "fanlight:certificate";
/// The length limit of a name in bytes; "SPIFFE implementations MUST support SPIFFE URIs up to 2048
/// bytes in length and MUST NOT generate URIs of length greater than 2048 bytes" (SPIFFE-ID, 2.3).
const MAX_NAME: usize = 2048;

/// The certificates of clients.
#[derive(Debug)]
pub(crate) struct Certificates {
    settings: CertificateSettings,
    groups: Arc<[Arc<str>]>,
    scopes: Scopes,
    /// Revokes all identities from certificates.
    pub(crate) revoked: CancellationToken,
}

impl Certificates {
    /// The method with these settings; `current` itself if they are unchanged.
    pub(crate) fn after(
        current: Option<&Arc<Self>>,
        settings: Option<&CertificateSettings>,
    ) -> Option<Arc<Self>> {
        let settings = settings?;
        if let Some(current) = current.filter(|current| current.settings == *settings) {
            return Some(Arc::clone(current));
        }
        let (groups, scopes) = (settings.grant.groups(), settings.grant.scopes());
        Some(Arc::new(Self {
            settings: settings.clone(),
            groups,
            scopes,
            revoked: CancellationToken::new(),
        }))
    }

    /// The identity in the connection's certificate; `None` without one.
    pub(crate) fn identity(
        &self,
        credentials: &Credentials<'_>,
    ) -> Option<Result<Arc<Identity>, Denial>> {
        let certificate = credentials.connection.certificate.as_deref()?;
        let identity = |(name, expires): (String, SystemTime)| {
            Arc::new(Identity {
                principal: Principal::named(ISSUER, &name),
                name: name.into(),
                source: Source::Certificate,
                groups: Arc::clone(&self.groups),
                scopes: self.scopes.clone(),
                claims: Claims::default(),
                endpoints: None,
                validity: Validity {
                    expires: Some(expires),
                    revoked: self.revoked.clone(),
                },
            })
        };
        Some(read(certificate, self.settings.principal, SystemTime::now()).map(identity))
    }
}

/// The name in a certificate, and when it expires.
fn read(
    der: &[u8],
    kind: CertificateName,
    now: SystemTime,
) -> Result<(String, SystemTime), Denial> {
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
    let name = match kind {
        CertificateName::Subject => subject(certificate.subject()),
        kind => alternative_name(&certificate, kind).ok_or_else(unreadable)?,
    };
    let name = name.filter(|name| !name.is_empty() && name.len() <= MAX_NAME);
    let nameless = || {
        let what = match kind {
            CertificateName::SanUri => {
                "the client certificate must have one URI among its subject alternative names"
            }
            CertificateName::SanDns => {
                "the client certificate must have one DNS name among its subject alternative names"
            }
            CertificateName::Subject => "the client certificate has no usable subject",
        };
        Denial::Invalid(what.into())
    };
    Ok((name.ok_or_else(nameless)?, expires))
}

/// The only value of this kind among the subject alternative names. The outer `None` means that
/// they cannot be read.
fn alternative_name(
    certificate: &X509Certificate<'_>,
    kind: CertificateName,
) -> Option<Option<String>> {
    let Some(extension) = certificate.subject_alternative_name().ok()? else {
        return Some(None);
    };
    let names = &extension.value.general_names;
    // An unreadable name could be a second value.
    if names
        .iter()
        .any(|name| matches!(name, GeneralName::Invalid(..)))
    {
        return None;
    }
    let mut values = names.iter().filter_map(|name| match (kind, name) {
        (CertificateName::SanUri, GeneralName::URI(uri)) => Some((*uri).to_owned()),
        // DNS names are compared without regard to case (RFC 4343).
        (CertificateName::SanDns, GeneralName::DNSName(name)) => Some(name.to_ascii_lowercase()),
        _ => None,
    });
    let only = values.next().filter(|_| values.next().is_none());
    // A text that could be mistaken for another name when shown or logged names nobody. A wildcard
    // names many.
    let is_plain = |name: &String| name.bytes().all(|byte| byte.is_ascii_graphic());
    let is_one = |name: &String| kind != CertificateName::SanDns || !name.contains('*');
    Some(only.filter(is_plain).filter(is_one))
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
