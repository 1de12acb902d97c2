//! Explains in plain words why no connection to an HTTP server could be made, and suggests a
//! remedy.

use std::error::Error;
use std::io;

use fanlight_canonical::{FailureDetails, RemedyKind};
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{AlertDescription, CertificateError, InvalidMessage};

use super::client::HttpError;
use super::connector::{find, is_refused_handshake};
use crate::log::excerpt;

/// The number of certificate names to show.
const NAMES: usize = 4;

/// The reason why no connection could be made.
pub(super) struct Problem {
    /// The description of the problem.
    pub(super) what: String,
    /// The remedy.
    pub(super) details: FailureDetails,
}

impl Problem {
    fn new(what: impl Into<String>, kind: RemedyKind, remedy: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            details: FailureDetails::from_remedy(kind, remedy.into()),
        }
    }
}

/// The problem behind an error of connecting.
pub(super) fn diagnose(error: &HttpError) -> Problem {
    let outermost: &(dyn Error + 'static) = match error {
        HttpError::Pooled(error) => error,
        HttpError::Library(error) => error,
        HttpError::Body(error) => error,
        HttpError::Tls(error) => error,
        HttpError::Coding(_) | HttpError::NoCredentials(_) => {
            return Problem {
                what: error.reason(),
                details: FailureDetails::default(),
            };
        }
    };
    if let Some(error) = find(outermost) {
        return tls_problem(error);
    }
    let cause = error.reason();
    let text = cause.to_lowercase();
    let is_any = |parts: &[&str]| parts.iter().any(|part| text.contains(part));
    let address = RemedyKind::Address;
    if is_any(&[
        "failed to lookup address",
        "name or service not known",
        "nodename nor servname",
        "dns error",
    ]) {
        return Problem::new(
            "its host name is not known",
            address,
            "check the spelling of the host in `url`",
        );
    }
    match io_kind(outermost) {
        Some(io::ErrorKind::ConnectionRefused) => {
            let remedy =
                "nothing listens there: start the server, or correct host and port in `url`";
            Problem::new("connection refused", address, remedy)
        }
        Some(io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable) => Problem::new(
            cause,
            address,
            "check the network of this machine, and the address in `url`",
        ),
        _ if is_any(&["timed out", "deadline has elapsed"]) => {
            let remedy = "check the address in `url`, and firewalls in between";
            Problem::new("no answer to the attempt to connect", address, remedy)
        }
        _ => Problem {
            what: cause,
            details: FailureDetails::default(),
        },
    }
}

/// The kind of the underlying system error, if there is one.
fn io_kind(error: &(dyn Error + 'static)) -> Option<io::ErrorKind> {
    match error.downcast_ref::<io::Error>() {
        Some(found) if found.get_ref().is_none() => Some(found.kind()),
        Some(found) => found.get_ref().and_then(|inner| io_kind(inner)),
        None => error.source().and_then(io_kind),
    }
}

/// The problem behind an error, if the server refused the client's part of the handshake.
pub(super) fn refused_handshake(error: &reqwest::Error) -> Option<Problem> {
    find(error)
        .filter(|_| is_refused_handshake(error))
        .map(tls_problem)
}

fn tls_problem(error: &rustls::Error) -> Problem {
    let tls = RemedyKind::Tls;
    match error {
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => Problem::new(
            "it speaks http, not https",
            tls,
            "write `http://` instead of `https://` in `url`",
        ),
        rustls::Error::InvalidCertificate(error) => certificate_problem(error),
        rustls::Error::AlertReceived(AlertDescription::CertificateRequired) => Problem::new(
            "it wants a client certificate",
            tls,
            "the gateway has no client certificate: put a proxy with one in between",
        ),
        rustls::Error::AlertReceived(AlertDescription::UnrecognisedName) => Problem::new(
            "it does not serve this host name",
            tls,
            "use the name that its certificate is for in `url`",
        ),
        rustls::Error::AlertReceived(AlertDescription::ProtocolVersion)
        | rustls::Error::PeerIncompatible(_) => {
            let what = "it and the gateway have no version or cipher of TLS in common";
            Problem::new(what, tls, "make the server accept TLS 1.2 or 1.3")
        }
        rustls::Error::AlertReceived(_) => Problem::new(
            "it broke off the TLS handshake",
            tls,
            "see the log of the server, or of the proxy in front of it",
        ),
        rustls::Error::InvalidMessage(_) | rustls::Error::InappropriateMessage { .. } => {
            Problem::new(
                "it does not speak TLS",
                tls,
                "correct host and port in `url`",
            )
        }
        _ => Problem::new(
            "the TLS handshake failed",
            tls,
            "see the log of the server, or of the proxy in front of it",
        ),
    }
}

fn certificate_problem(error: &CertificateError) -> Problem {
    let tls = RemedyKind::Tls;
    match error {
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => {
            let expected = shown_name(expected);
            let names: Vec<_> = presented
                .iter()
                .take(NAMES)
                .map(|name| quoted_part(name))
                .collect();
            let what = if names.is_empty() {
                format!("its certificate names no host, and so not {expected}")
            } else {
                format!(
                    "its certificate is for {}, not for {expected}",
                    names.join(", ")
                )
            };
            Problem::new(
                what,
                tls,
                "use a host name that the certificate is for in `url`, or give the server another",
            )
        }
        CertificateError::NotValidForName => Problem::new(
            "its certificate is for another host",
            tls,
            "use the host name that it is for in `url`",
        ),
        CertificateError::UnknownIssuer => Problem::new(
            "its certificate is of an authority that this machine does not know",
            tls,
            "put the authority's certificate into a file, and name that as `caFile` of the server",
        ),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => Problem::new(
            "its certificate has expired",
            tls,
            "renew it, or set the clock of this machine",
        ),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            Problem::new(
                "its certificate is not valid yet",
                tls,
                "set the clock of this machine, or of the server",
            )
        }
        CertificateError::Revoked => Problem::new(
            "its certificate has been revoked",
            tls,
            "give the server another",
        ),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            Problem::new(
                "its certificate is not one for servers",
                tls,
                "give the server one with the purpose `serverAuth`",
            )
        }
        CertificateError::BadSignature => Problem::new(
            "its certificate was not signed by the authority that it names",
            tls,
            "check that `caFile` has the authority's current certificate",
        ),
        other if other.to_string().contains("CaUsedAsEndEntity") => Problem::new(
            "its certificate is that of an authority, not of a server",
            tls,
            "make one for the server with that authority (`basicConstraints=CA:FALSE`), and name the authority's as `caFile`",
        ),
        _ => Problem::new(
            "its certificate is not valid",
            tls,
            "inspect it with `openssl s_client -connect`",
        ),
    }
}

fn shown_name(name: &ServerName<'_>) -> String {
    excerpt(name.to_str().as_bytes(), 100)
}

/// The part in quotes or brackets of a name as TLS shows it: `DnsName("a.example")`.
fn quoted_part(name: &str) -> String {
    let inner = name
        .split_once('"')
        .and_then(|(_, rest)| rest.split_once('"'));
    let inner = inner.or_else(|| {
        name.split_once('(')
            .and_then(|(_, rest)| rest.rsplit_once(')'))
    });
    excerpt(inner.map_or(name, |(inner, _)| inner).as_bytes(), 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_tls_are_found_and_put_in_plain_words() {
        let nested = |error: rustls::Error| {
            io::Error::other(io::Error::new(io::ErrorKind::InvalidData, error))
        };
        let context = CertificateError::NotValidForNameContext {
            expected: ServerName::try_from("b.example").unwrap(),
            presented: vec![
                "DnsName(\"a.example\")".into(),
                "IpAddress(10.0.0.7)".into(),
            ],
        };
        for (error, expected) in [
            (
                rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType),
                "speaks http, not https",
            ),
            (
                rustls::Error::InvalidCertificate(context),
                "is for a.example, 10.0.0.7, not for b.example",
            ),
            (
                rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer),
                "does not know",
            ),
            (
                rustls::Error::InvalidCertificate(CertificateError::Expired),
                "has expired",
            ),
            (
                rustls::Error::AlertReceived(AlertDescription::HandshakeFailure),
                "broke off",
            ),
            (
                rustls::Error::General("Debug { text }".into()),
                "the TLS handshake failed",
            ),
        ] {
            let error = nested(error);
            let problem = tls_problem(find(&error).unwrap());
            assert!(problem.what.contains(expected), "{}", problem.what);
            let remedy = problem.details.remedy.unwrap();
            assert_eq!(remedy.kind, RemedyKind::Tls);
            assert!(
                !problem.what.contains(['{', '(']) && !remedy.text.contains('{'),
                "{} {}",
                problem.what,
                remedy.text
            );
        }
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert!(find(&refused).is_none());
        assert_eq!(
            io_kind(&io::Error::other(refused)),
            Some(io::ErrorKind::ConnectionRefused)
        );
    }
}
