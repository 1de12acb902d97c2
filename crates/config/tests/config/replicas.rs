//! `replicas`.

use crate::{errors, good, parse_yaml};

const KEYS: &str = "keys: [\"1111111111111111111111111111111111111111111111111111111111111111\"]\nmcpServers: {a: {command: run}}\n";

#[test]
fn replicas_name_valkey_and_are_shown_without_its_password() {
    let config = good(&format!(
        "replicas: {{valkey: 'valkeys://me:s3cret@db:7000/1', caFile: ca.pem, listen: '10.0.0.7:8443', tls: {{cert: c, key: k, clientCa: a}}}}\n{KEYS}"
    ));
    let replicas = config.replicas.as_ref().unwrap();
    assert_eq!(
        replicas.valkey.as_ref().unwrap().to_string(),
        "valkeys://db:7000/1"
    );
    assert_eq!(replicas.ca_file.as_deref(), Some("folder/ca.pem"));
    assert_eq!(replicas.tls.as_ref().unwrap().cert, "folder/c");
    assert_eq!(
        (replicas.group.as_str(), replicas.listen.unwrap().port()),
        ("fanlight", 8443)
    );
    assert!(!format!("{config:?}{}", config.masked_json()).contains("s3cret"));
    assert!(good(KEYS).replicas.is_none());
}

#[test]
fn replicas_need_valkey_and_common_keys() {
    let without_keys = "replicas: {valkey: 'valkey://db'}\nmcpServers: {a: {command: run}}\n";
    assert_eq!(
        errors(without_keys),
        ["1:11 `replicas` need `keys`: no replica could read what another has sealed"]
    );
    assert_eq!(
        errors(&format!("replicas: {{}}\n{KEYS}")),
        ["1:11 `valkey` is missing in `replicas`"]
    );
}

#[test]
fn wrong_values_of_replicas_are_refused_and_passwords_not_shown() {
    let wrong = format!(
        "replicas: {{valkey: 'http://me:s3cret@db', group: 'a b', listen: '0.0.0.0:1'}}\n{KEYS}"
    );
    assert_eq!(
        errors(&wrong),
        [
            "1:20 this is not the URL of a Valkey",
            "1:50 `a b` cannot be the name of a group",
            "1:65 `0.0.0.0:1` is not an address that others could reach",
            "1:65 `listen` needs `tls` with `clientCa`"
        ]
    );
    assert!(
        !parse_yaml(&wrong)
            .unwrap_err()
            .to_string()
            .contains("s3cret")
    );
}

#[test]
fn replicas_cannot_do_without_certificates_of_each_other() {
    let with = |choice: &str| {
        format!(
            "replicas: {{valkey: 'valkey://db', listen: '10.0.0.7:1', tls: {{cert: c, key: k, clientCa: a{choice}}}}}\n{KEYS}"
        )
    };
    for choice in ["none", "optional"] {
        let refused = "1:105 `replicas` always require certificates of each other";
        assert_eq!(errors(&with(&format!(", clientAuth: {choice}"))), [refused]);
    }
    assert!(
        good(&with(", clientAuth: required")).replicas.is_some()
            && good(&with("")).replicas.is_some()
    );
}
