//! Certificates and keys for TLS to a collector.

use std::path::Path;

use fanlight_config::settings::read_bounded;

use crate::{StartError, TlsFiles};

/// The limit of a file with certificates, in bytes.
const LONGEST: usize = 1 << 20;

/// The contents of the files, in PEM.
struct Pem {
    roots: Option<Vec<u8>>,
    /// The client certificate and its private key.
    own: Option<(Vec<u8>, Vec<u8>)>,
}

/// TLS settings for gRPC.
#[cfg(feature = "grpc")]
pub(crate) fn for_channel(
    files: &TlsFiles,
) -> Result<tonic::transport::ClientTlsConfig, StartError> {
    use tonic::transport::{Certificate, ClientTlsConfig, Identity};

    let Pem { roots, own } = read(files)?;
    let config = match roots {
        Some(roots) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(roots)),
        None => ClientTlsConfig::new().with_native_roots(),
    };
    Ok(match own {
        Some((certificate, key)) => config.identity(Identity::from_pem(certificate, key)),
        None => config,
    })
}

/// Adds TLS settings to a client for HTTP.
pub(crate) fn for_http(
    files: &TlsFiles,
    mut client: reqwest::ClientBuilder,
) -> Result<reqwest::ClientBuilder, StartError> {
    let Pem { roots, own } = read(files)?;
    if let Some(roots) = roots {
        client = client.tls_certs_only(certificates(&roots).unwrap_or_default());
    }
    if let Some((mut pem, key)) = own {
        pem.push(b'\n');
        pem.extend(key);
        let identity = reqwest::Identity::from_pem(&pem).map_err(|_| unusable_identity(files))?;
        client = client.identity(identity);
    }
    Ok(client)
}

fn read(files: &TlsFiles) -> Result<Pem, StartError> {
    let roots = files.certificate.as_deref().map(contents).transpose()?;
    if let Some((path, pem)) = files.certificate.as_deref().zip(roots.as_deref()) {
        certificates(pem).ok_or_else(|| unusable(path, "it has no certificate in PEM form"))?;
    }
    let own = match (&files.client_certificate, &files.client_key) {
        (Some(certificate), Some(key)) => {
            let (certificate, key) = (contents(certificate)?, contents(key)?);
            let whole = [certificate.as_slice(), b"\n", key.as_slice()].concat();
            reqwest::Identity::from_pem(&whole).map_err(|_| unusable_identity(files))?;
            Some((certificate, key))
        }
        (None, None) => None,
        (Some(path), None) => return Err(unusable(path, "a client certificate needs its key")),
        (None, Some(path)) => return Err(unusable(path, "a client key needs its certificate")),
    };
    Ok(Pem { roots, own })
}

fn contents(path: &Path) -> Result<Vec<u8>, StartError> {
    let pem = read_bounded(path, LONGEST).map_err(|error| unusable(path, &error.to_string()))?;
    if pem.len() > LONGEST {
        Err(unusable(path, "it is larger than a megabyte"))
    } else {
        Ok(pem)
    }
}

/// The certificates in `pem`. `None` if there are none, or if it contains anything else.
fn certificates(pem: &[u8]) -> Option<Vec<reqwest::Certificate>> {
    reqwest::Certificate::from_pem_bundle(pem)
        .ok()
        .filter(|all| !all.is_empty())
}

fn unusable(path: &Path, reason: &str) -> StartError {
    StartError::Certificate {
        path: path.display().to_string(),
        reason: reason.to_owned(),
    }
}

fn unusable_identity(files: &TlsFiles) -> StartError {
    let path = files.client_key.as_deref().unwrap_or(Path::new(""));
    unusable(
        path,
        "it needs both the key and the certificate in PEM form",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The message for a file of root certificates that cannot be used.
    fn refused(path: &Path) -> String {
        let files = TlsFiles {
            certificate: Some(path.to_owned()),
            ..TlsFiles::default()
        };
        read(&files).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn only_regular_files_up_to_a_size_are_read() {
        assert!(refused(Path::new("/dev/null")).contains("it is not a regular file"));
        let path = std::env::temp_dir().join(format!("fanlight-otlp-{}.pem", std::process::id()));
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(LONGEST as u64 + 1).unwrap();
        let large = refused(&path);
        file.set_len(LONGEST as u64).unwrap();
        let other = refused(&path);
        std::fs::remove_file(&path).unwrap();
        assert!(
            large.contains("larger than a megabyte") && other.contains("has no certificate"),
            "{large} {other}"
        );
    }
}
