//! Errors of TLS behind those of HTTP libraries.

use std::error::Error;
use std::io;

use tokio_rustls::rustls;
use tokio_rustls::rustls::AlertDescription;

/// Whether the server refused what the client had to say of itself in the handshake. With TLS 1.3 that arrives when the
/// client believes the handshake to be over, but the server reads no request before.
pub(super) fn is_refused_handshake(error: &(dyn Error + 'static)) -> bool {
    matches!(
        find(error),
        Some(rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired
                | AlertDescription::BadCertificate
                | AlertDescription::CertificateUnknown
                | AlertDescription::UnknownCA
        ))
    )
}

/// The error of TLS behind another, if there is one. What an [`io::Error`] is made of is not its source.
pub(super) fn find<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    if let Some(found) = error.downcast_ref() {
        return Some(found);
    }
    let inner = error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref);
    match inner {
        Some(inner) => find(inner),
        None => error.source().and_then(find),
    }
}
