//! The program that other packages' tests start. Because of this test target, cargo builds it
//! beside the tests; otherwise the first test that needs it would wait for its build.

use std::path::Path;

use fanlight_testkit::programs;

#[test]
fn program_is_found_where_cargo_built_it() {
    if std::env::var_os("FANLIGHT_TEST_BINARY").is_none() {
        let (found, built) = (
            programs::fanlight(),
            Path::new(env!("CARGO_BIN_EXE_fanlight")),
        );
        assert_eq!(found.canonicalize().unwrap(), built.canonicalize().unwrap());
    }
}
