//! The programs of this crate. Because of this test target, cargo builds them whenever it tests the
//! crate.

use std::path::Path;

use fanlight_testkit::programs;

#[test]
fn scripted_stdio_is_found_where_cargo_built_it() {
    let (found, built) = (
        programs::scripted_stdio(),
        Path::new(env!("CARGO_BIN_EXE_scripted-stdio")),
    );
    assert_eq!(found.canonicalize().unwrap(), built.canonicalize().unwrap());
}
