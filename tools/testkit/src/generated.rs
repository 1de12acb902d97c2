//! Generated files of the repository: compared with the committed ones, or written if
//! `UPDATE_GENERATED` is set.

use std::path::Path;

/// The line behind a generated part of a file.
const END: &str = "<!-- The end of what is made. -->\n";

/// Compares a generated file, by its path in the repository.
///
/// # Panics
///
/// Panics if the committed file differs, or cannot be written.
pub fn assert_file(path: &str, current: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path);
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(file, current).unwrap();
        return;
    }
    let committed = std::fs::read_to_string(file).unwrap_or_default();
    assert!(
        committed == current,
        "{path} is out of date: run this test with UPDATE_GENERATED=1 to write it"
    );
}

/// Compares the part of a file between the line `begin` and the line `<!-- The end of what is made.
/// -->`.
///
/// # Panics
///
/// Panics if the committed part differs, or cannot be found or written.
pub fn assert_part(path: &str, begin: &str, current: &str) {
    let page = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(path),
    )
    .unwrap();
    let (head, rest) = page
        .split_once(begin)
        .unwrap_or_else(|| panic!("{path} has no line {begin:?}"));
    let (_, tail) = rest
        .split_once(END)
        .unwrap_or_else(|| panic!("{path} has no line {END:?}"));
    assert_file(path, &format!("{head}{begin}{current}{END}{tail}"));
}
