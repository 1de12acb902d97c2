use fanlight_canonical::identity::Principal;
use fanlight_credentials::ConnectionFacts;
use http::HeaderMap;
use proptest::prelude::*;
use rcgen::string::Ia5String;
use rcgen::{CertificateParams, DnType, KeyPair, SanType};

use super::*;
use crate::testing::at_mcp;

fn uri(text: &str) -> SanType {
    SanType::URI(Ia5String::try_from(text).unwrap())
}

fn dns(text: &str) -> SanType {
    SanType::DnsName(Ia5String::try_from(text).unwrap())
}

/// A certificate with these names.
fn certificate(names: Vec<SanType>, change: impl FnOnce(&mut CertificateParams)) -> Vec<u8> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.subject_alt_names = names;
    change(&mut params);
    params
        .self_signed(&KeyPair::generate().unwrap())
        .unwrap()
        .der()
        .to_vec()
}

fn name(der: &[u8]) -> Result<String, Denial> {
    read(der, SystemTime::now()).map(|(name, _)| name)
}

#[test]
fn certificate_names_its_principal() {
    let id = "spiffe://example.com/ns/agents/sa/runner";
    let both = certificate(vec![uri(id), dns("Runner.Example.COM")], |_| {});
    assert_eq!(name(&both).unwrap(), id);
    let host = certificate(vec![dns("Runner.Example.COM")], |params| {
        params.distinguished_name.push(DnType::CommonName, "x");
    });
    assert_eq!(name(&host).unwrap(), "runner.example.com");
}

#[test]
fn certificate_with_several_or_no_names_names_nobody() {
    for names in [
        // One DNS name does not make up for several or strange URIs, nor does the subject.
        vec![uri("spiffe://a/x"), uri("spiffe://a/y"), dns("a")],
        vec![uri("spiffe://a/x"), uri("spiffe://a/x"), dns("a")],
        vec![dns("a"), dns("b")],
        vec![dns("a"), dns("a")],
        vec![uri("spiffe://a/x y"), dns("a")],
        vec![uri("CN=x:y")],
        vec![uri("host.example.com")],
        vec![uri(""), dns("a")],
        vec![dns("*.example.com")],
        vec![dns("CN=x")],
        vec![dns("spiffe://a/x")],
        vec![dns("")],
    ] {
        let der = certificate(names.clone(), |params| {
            params.distinguished_name.push(DnType::CommonName, "x");
        });
        assert!(matches!(name(&der), Err(Denial::Invalid(_))), "{names:?}");
    }
    let none = certificate(Vec::new(), |_| {});
    assert!(matches!(name(&none), Err(Denial::Invalid(_))));
    let long = certificate(
        vec![uri(&format!("spiffe://a/{}", "x".repeat(2048)))],
        |_| {},
    );
    assert!(name(&long).is_err());
}

#[test]
fn subject_is_written_without_ambiguity() {
    let of = |entries: &[(DnType, &str)]| {
        let der = certificate(Vec::new(), |params| {
            entries
                .iter()
                .for_each(|(kind, value)| params.distinguished_name.push(kind.clone(), *value));
        });
        name(&der).unwrap()
    };
    let plain = of(&[
        (DnType::OrganizationName, "Example"),
        (DnType::CommonName, "runner"),
    ]);
    assert_eq!(plain, "CN=runner,O=Example");
    // A single value that looks like two.
    assert_eq!(
        of(&[(DnType::CommonName, "runner,O=Example")]),
        "CN=runner\\,O=Example"
    );
    assert_eq!(of(&[(DnType::CommonName, " a+b\n ")]), "CN=\\ a\\+b\\0a\\ ");
}

#[test]
fn certificate_counts_while_it_is_valid() {
    let der = certificate(vec![uri("spiffe://a/x")], |params| {
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2030, 1, 1);
    });
    let at = |seconds| read(&der, UNIX_EPOCH + Duration::from_secs(seconds));
    let (from, until) = (1_577_836_800, 1_893_456_000);
    assert!(at(from - 1).is_err() && at(until).is_err() && at(from).is_ok());
    assert_eq!(
        at(until - 1).unwrap().1,
        UNIX_EPOCH + Duration::from_secs(until)
    );
}

#[test]
fn connection_without_a_certificate_shows_nothing() {
    let certificates = Certificates::default();
    let headers = HeaderMap::new();
    let shown = |certificate: Option<Vec<u8>>| {
        let connection = ConnectionFacts {
            certificate: certificate.map(Arc::from),
            ..ConnectionFacts::default()
        };
        certificates.identity(&at_mcp(&headers, &connection))
    };
    assert!(shown(None).is_none());
    assert!(matches!(
        shown(Some(Vec::new())),
        Some(Err(Denial::Invalid(_)))
    ));
    let identity = shown(Some(certificate(vec![uri("spiffe://a/x")], |_| {})))
        .unwrap()
        .unwrap();
    assert_eq!(
        identity.principal,
        Principal::new("fanlight:certificate", "spiffe://a/x")
    );
}

proptest! {
    /// A damaged certificate is denied or has the same name, unless the damage is in the name
    /// itself. It never causes a panic.
    #[test]
    fn damaged_certificate_is_read_or_denied(cut in 0_usize..900, at in 0_usize..900, byte: u8) {
        static WHOLE: std::sync::LazyLock<Vec<u8>> =
            std::sync::LazyLock::new(|| certificate(vec![uri("spiffe://a/x"), dns("a.example")], |params| {
                params.distinguished_name.push(DnType::CommonName, "x");
            }));
        let mut damaged = WHOLE.clone();
        let at = at % damaged.len();
        damaged[at] = byte;
        if let Ok(name) = name(&damaged) {
            prop_assert!(!name.is_empty() && name.len() <= MAX_NAME);
        }
        // A longer length in the certificate's head may cover these bytes; TLS refuses that
        // earlier.
        let says_longer = at < 4;
        damaged.push(0);
        prop_assert!(says_longer || name(&damaged).is_err(), "bytes after the certificate");
        let cut = &WHOLE[..cut.min(WHOLE.len() - 1)];
        prop_assert!(name(cut).is_err());
    }
}
