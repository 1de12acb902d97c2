//! Checks the table of error codes in docs/reference/errors.md. `UPDATE_GENERATED=1` writes it.

use crate::code;

const BEGIN: &str = "<!-- Made from crates/protocol/src/error.rs: `UPDATE_GENERATED=1 cargo test -p fanlight-protocol` writes it. -->\n";

#[test]
fn error_reference_is_current() {
    fanlight_testkit::generated::assert_part("docs/reference/errors.md", BEGIN, &table());
}

/// The table: Fanlight's codes, then the codes of JSON-RPC, then the codes of MCP.
fn table() -> String {
    let mut codes = code::ALL.to_vec();
    codes.sort_by_key(|info| {
        (
            info.defined_by != "Fanlight",
            info.defined_by != "JSON-RPC",
            -info.code,
        )
    });
    let rows = codes.iter().map(|info| {
        format!(
            "| {} | {} | {} |\n",
            info.code,
            info.defined_by,
            info.meaning.trim()
        )
    });
    format!(
        "\n| code | defined by | when |\n|---|---|---|\n{}\n",
        rows.collect::<String>()
    )
}

#[test]
fn codes_differ_and_have_a_meaning() {
    for (number, info) in code::ALL.iter().enumerate() {
        assert!(
            code::ALL[..number]
                .iter()
                .all(|other| other.code != info.code),
            "{}",
            info.code
        );
        assert!(info.meaning.trim().ends_with('.'), "{}", info.meaning);
    }
}
