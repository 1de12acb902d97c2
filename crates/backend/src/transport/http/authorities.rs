//! Certificate authorities for servers, besides those that the system trusts.

use std::path::Path;
use std::sync::Arc;

use fanlight_config::settings::read_bounded;
use rustls_platform_verifier::Verifier;
use tokio_rustls::rustls;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

use crate::log::excerpt;

/// The maximum size of a certificate file in bytes.
const LONGEST: usize = 1 << 20;

/// Certificates of authorities.
#[derive(Clone, Debug, Default)]
pub(super) struct Authorities(Vec<CertificateDer<'static>>);

impl Authorities {
    /// Reads the certificates in a PEM file; none without a file. The error names the file, since
    /// it is for operators.
    pub(super) fn read(file: Option<&Path>) -> Result<Self, String> {
        let Some(file) = file else {
            return Ok(Self::default());
        };
        let shown = excerpt(file.as_os_str().as_encoded_bytes(), 200);
        let cannot = |why: String| format!("its `caFile` {shown} cannot be used: {why}");
        let pem = read_bounded(file, LONGEST).map_err(|error| cannot(error.to_string()))?;
        if pem.len() > LONGEST {
            return Err(cannot(format!("it is larger than {LONGEST} bytes")));
        }
        match CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>() {
            Ok(found) if !found.is_empty() => Ok(Self(found)),
            _ => Err(cannot("it has no certificate in PEM form".to_owned())),
        }
    }

    /// Settings for TLS that accept certificates of these authorities, too.
    pub(super) fn tls(self) -> Result<ClientConfig, rustls::Error> {
        let provider = CryptoProvider::get_default().cloned();
        let provider = provider.unwrap_or_else(|| Arc::new(aws_lc_rs::default_provider()));
        let verifier = Verifier::new_with_extra_roots(self.0, Arc::clone(&provider))?;
        Ok(ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth())
    }
}
