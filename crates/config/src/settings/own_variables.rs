//! The environment variables with Fanlight's own secrets.

/// Whether a variable is Fanlight's own, or has its credentials for the collector. No server's
/// process gets it.
pub fn is_own_variable(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    name.starts_with("FANLIGHT_")
        || (name.starts_with("OTEL_EXPORTER_OTLP_") && name.ends_with("HEADERS"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_variables_are_those_of_fanlight_and_the_headers_for_its_collector() {
        for own in [
            "FANLIGHT_KEY",
            "FANLIGHT_ADMIN_TOKEN",
            "OTEL_EXPORTER_OTLP_HEADERS",
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
        ] {
            assert!(is_own_variable(own), "{own}");
        }
        for other in [
            "FANLIGHT",
            "MY_FANLIGHT_KEY",
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "HOME",
            "",
        ] {
            assert!(!is_own_variable(other), "{other}");
        }
    }
}
