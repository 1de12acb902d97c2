//! TLS errors inside the errors of HTTP libraries.

use std::error::Error;
use std::io;

use tokio_rustls::rustls;
use tokio_rustls::rustls::AlertDescription;

/// Whether the server refused the client's part of the handshake. With TLS 1.3 this error arrives
/// after the client considers the handshake complete, but before the server reads a request.
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

/// The TLS error inside another error, if there is one. The inner error of an [`io::Error`] is not
/// its source.
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
