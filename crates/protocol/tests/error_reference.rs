//! docs/reference/errors.md has every error code; `UPDATE_GENERATED=1` writes its table.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "the lint knows test functions only, not their helpers")]

use std::fs;
use std::path::Path;

use fanlight_protocol::code;

const BEGIN: &str = "<!-- Made from crates/protocol/src/error.rs: `UPDATE_GENERATED=1 cargo test -p fanlight-protocol` writes it. -->\n";
const END: &str = "<!-- The end of what is made. -->\n";

#[test]
fn error_reference_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/errors.md");
    let page = fs::read_to_string(&path).unwrap();
    let (head, rest) = page.split_once(BEGIN).expect("the page has the beginning of the table");
    let (_, tail) = rest.split_once(END).expect("the page has the end of the table");
    let current = format!("{head}{BEGIN}{}{END}{tail}", table());
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        fs::write(&path, current).unwrap();
    } else {
        assert_eq!(page, current, "set UPDATE_GENERATED=1 to write it");
    }
}

/// Those of Fanlight first, then those of JSON-RPC and MCP.
fn table() -> String {
    let mut codes = code::ALL.to_vec();
    codes.sort_by_key(|info| (info.defined_by != "Fanlight", info.defined_by != "JSON-RPC", -info.code));
    let rows = codes.iter().map(|info| format!("| {} | {} | {} |\n", info.code, info.defined_by, info.meaning.trim()));
    format!("\n| code | defined by | when |\n|---|---|---|\n{}\n", rows.collect::<String>())
}

#[test]
fn codes_differ_and_have_a_meaning() {
    for (number, info) in code::ALL.iter().enumerate() {
        assert!(code::ALL[..number].iter().all(|other| other.code != info.code), "{}", info.code);
        assert!(info.meaning.trim().ends_with('.'), "{}", info.meaning);
    }
}
