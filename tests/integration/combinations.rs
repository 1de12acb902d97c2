//! All combinations of a client's era and transport with a server's.

/// Passes all combinations to the macro `$tests`, each as `name: era over transport to era over
/// transport;`, the client first.
///
/// Twelve of the sixteen have an attribute that leaves a test to `.ci/nightly`. Tests that compare
/// bytes ignore it, since each combination has code of its own that could change bytes; other tests
/// apply it. The four combinations without it cover each pair of eras and each pair of transports
/// once.
macro_rules! for_all_combinations {
    ($tests:ident) => {
        $tests! {
            #[ignore = "nightly"]
            modern_http_to_modern_http: Modern over Http to Modern over Http;
            modern_http_to_modern_stdio: Modern over Http to Modern over Stdio;
            #[ignore = "nightly"]
            modern_http_to_legacy_http: Modern over Http to Legacy over Http;
            #[ignore = "nightly"]
            modern_http_to_legacy_stdio: Modern over Http to Legacy over Stdio;
            #[ignore = "nightly"]
            modern_stdio_to_modern_http: Modern over Stdio to Modern over Http;
            #[ignore = "nightly"]
            modern_stdio_to_modern_stdio: Modern over Stdio to Modern over Stdio;
            modern_stdio_to_legacy_http: Modern over Stdio to Legacy over Http;
            #[ignore = "nightly"]
            modern_stdio_to_legacy_stdio: Modern over Stdio to Legacy over Stdio;
            legacy_http_to_modern_http: Legacy over Http to Modern over Http;
            #[ignore = "nightly"]
            legacy_http_to_modern_stdio: Legacy over Http to Modern over Stdio;
            #[ignore = "nightly"]
            legacy_http_to_legacy_http: Legacy over Http to Legacy over Http;
            #[ignore = "nightly"]
            legacy_http_to_legacy_stdio: Legacy over Http to Legacy over Stdio;
            #[ignore = "nightly"]
            legacy_stdio_to_modern_http: Legacy over Stdio to Modern over Http;
            #[ignore = "nightly"]
            legacy_stdio_to_modern_stdio: Legacy over Stdio to Modern over Stdio;
            #[ignore = "nightly"]
            legacy_stdio_to_legacy_http: Legacy over Stdio to Legacy over Http;
            legacy_stdio_to_legacy_stdio: Legacy over Stdio to Legacy over Stdio;
        }
    };
}
