//! Hosts of URLs that mean this machine.

use std::net::IpAddr;

/// Whether a URL's host means this machine, whoever resolves it.
pub fn is_loopback(host: &str) -> bool {
    let address = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|ip| ip.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::is_loopback;

    #[test]
    fn only_names_that_nobody_else_can_have_are_this_machine() {
        for host in ["localhost", "127.9.9.9", "[::1]", "[::ffff:127.0.0.1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            "a.b",
            "localhost.a.b",
            "127.0.0.1.a.b",
            "10.0.0.1",
            "[::]",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
