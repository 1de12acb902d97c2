use rcgen::{CertificateParams, KeyPair};

use super::*;

/// The certificate and the key of a pair, as PEM.
fn pair() -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["localhost".to_owned()])
        .unwrap()
        .self_signed(&key)
        .unwrap();
    (certificate.pem(), key.serialize_pem())
}

fn server(certificate: &str, key: &str, ca: Option<&str>) -> Result<TlsServer, TlsError> {
    let client_ca = ca.map(|ca| ClientCa {
        certificates: ca.as_bytes(),
        is_optional: false,
    });
    let files = TlsFiles {
        certificate: certificate.as_bytes(),
        key: key.as_bytes(),
        client_ca,
    };
    TlsServer::new(files, HttpVersions::OneAndTwo)
}

fn failure(certificate: &str, key: &str, ca: Option<&str>) -> String {
    server(certificate, key, ca).unwrap_err().to_string()
}

#[test]
fn files_must_fit_together() {
    let ((certificate, key), (other, other_key)) = (pair(), pair());
    assert!(
        server(&certificate, &key, None).is_ok()
            && server(&certificate, &key, Some(&other)).is_ok()
    );
    assert!(failure(&certificate, &other_key, None).contains("not the key of the certificate"));
    assert!(failure("", &key, None).contains("`cert` has no certificate"));
    assert!(failure(&key, &key, None).contains("`cert` has no certificate"));
    assert!(failure(&certificate, &certificate, None).contains("`key` has no private key"));
    assert!(failure(&certificate, &key, Some("# none")).contains("`clientCa` has no certificate"));
    let broken = certificate.replace("MII", "AAA");
    assert!(
        server(&broken, &key, None).is_err() && server(&certificate, &key, Some(&broken)).is_err()
    );
    let cut = &certificate[..certificate.len() / 2];
    assert!(server(cut, &key, None).is_err());
}

/// Tickets would outlast the clients' certificates.
#[test]
fn sessions_of_clients_with_certificates_are_not_resumed() {
    let (certificate, key) = pair();
    let with = server(&certificate, &key, Some(&certificate)).unwrap().0;
    let without = server(&certificate, &key, None).unwrap().0;
    assert_eq!(
        (with.send_tls13_tickets, with.ticketer.enabled()),
        (0, false)
    );
    assert!(without.send_tls13_tickets > 0 && without.ticketer.enabled());
    assert!(!with.session_storage.can_cache() && !without.session_storage.can_cache());
}
