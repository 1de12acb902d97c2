//! TLS of the connection to an admin listener, from `--admin-cert`, `--admin-key` and `--admin-ca`.

use std::fs;
use std::path::Path;

use fanlight_grants::fetch;
use reqwest::{ClientBuilder, Identity};

use crate::cli::AdminArgs;
use crate::failure::Failure;

/// The options in use.
pub(super) fn options(args: &AdminArgs) -> impl Iterator<Item = &'static str> {
    let all = [
        ("--admin-cert", &args.admin_cert),
        ("--admin-key", &args.admin_key),
        ("--admin-ca", &args.admin_ca),
    ];
    all.into_iter()
        .filter(|(_, path)| path.is_some())
        .map(|(option, _)| option)
}

/// Gives a client the user's certificate, and the authorities to trust.
pub(super) fn configure(
    mut http: ClientBuilder,
    args: &AdminArgs,
) -> Result<ClientBuilder, Failure> {
    if let Some(path) = &args.admin_ca {
        let none = |_| {
            Failure::usage(format!(
                "--admin-ca {}: the file has no PEM certificate",
                path.display()
            ))
        };
        http = http.tls_certs_merge(fetch::authorities(&read(path)?).map_err(none)?);
    }
    if let (Some(certificate), Some(key)) = (&args.admin_cert, &args.admin_key) {
        let pem = [read(certificate)?, b"\n".to_vec(), read(key)?].concat();
        // The cause is left out, since it may show a part of the key.
        let identity = Identity::from_pem(&pem).map_err(|_| no_identity(certificate, key))?;
        http = http.identity(identity);
    }
    Ok(http)
}

/// The failure if no client could be created.
pub(super) fn unusable(args: &AdminArgs, error: &reqwest::Error) -> Failure {
    match (&args.admin_cert, &args.admin_key) {
        (Some(certificate), Some(key)) => no_identity(certificate, key),
        _ => Failure::other(error),
    }
}

fn no_identity(certificate: &Path, key: &Path) -> Failure {
    Failure::usage(format!(
        "--admin-cert {} and --admin-key {} are not a PEM certificate and its private key",
        certificate.display(),
        key.display()
    ))
}

/// The remedy for this cause of a failed connection.
pub(super) fn help(cause: &str) -> Option<&'static str> {
    let has = |part: &str| cause.contains(part);
    if has("CertificateRequired") {
        Some("it requires a client certificate: name one with --admin-cert and --admin-key")
    } else if has("AlertReceived") || has("fatal alert") {
        Some("it does not accept the certificate of --admin-cert, or the handshake")
    } else if has("certificate") {
        Some("name the authority that signed its certificate with --admin-ca")
    } else {
        None
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path)
        .map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))
}
