//! The name in this replica's certificate.

use x509_parser::extensions::GeneralName;
use x509_parser::pem::Pem;

/// The first DNS name in the first certificate of `pem`, which all replicas' certificates share.
/// `None` if it has none or one with a wildcard: each replica's certificate is then for its
/// address.
pub(crate) fn dns_name(pem: &[u8]) -> Option<String> {
    let pem = Pem::iter_from_buffer(pem)
        .filter_map(Result::ok)
        .find(|pem| pem.label == "CERTIFICATE")?;
    let certificate = pem.parse_x509().ok()?;
    let names = certificate.subject_alternative_name().ok()??;
    let name = names
        .value
        .general_names
        .iter()
        .find_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            _ => None,
        })?;
    Some(name).filter(|name| !name.contains('*'))
}
