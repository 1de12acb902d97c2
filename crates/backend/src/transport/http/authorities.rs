//! Certificate authorities for servers, besides those that the system trusts.

use std::path::Path;

use fanlight_config::settings::read_bounded;
use reqwest::Certificate;

use crate::log::excerpt;

/// The maximum size of a certificate file in bytes.
const LONGEST: usize = 1 << 20;

/// Certificates of authorities.
#[derive(Clone, Debug, Default)]
pub(super) struct Authorities(Vec<Certificate>);

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
        match Certificate::from_pem_bundle(&pem) {
            Ok(found) if !found.is_empty() => Ok(Self(found)),
            _ => Err(cannot("it has no certificate in PEM form".to_owned())),
        }
    }

    /// Makes a client accept certificates of these authorities, too.
    pub(super) fn add_to(&self, builder: reqwest::ClientBuilder) -> reqwest::ClientBuilder {
        match self.0.is_empty() {
            true => builder,
            false => builder.tls_certs_merge(self.0.iter().cloned()),
        }
    }
}
