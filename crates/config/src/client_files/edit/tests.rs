use super::*;
use crate::client_files::entry::{Credential, Reach};

fn entry(client: Client) -> Entry {
    let url = "http://127.0.0.1:8080/mcp".to_owned();
    Entry::new(
        client,
        "fanlight",
        Reach::Http {
            url,
            credential: Credential::None,
        },
    )
}

/// Adds the entry, checks the text in between, and removes the entry again.
fn added(client: Client, text: &str) -> String {
    let entry = entry(client);
    let with = add(client, text, &entry).unwrap();
    assert_eq!(
        find_entry(client, &with, "fanlight").unwrap().as_ref(),
        Some(&entry.value),
        "{with}"
    );
    assert_eq!(add(client, &with, &entry).unwrap(), with, "added twice");
    with
}

#[test]
fn json_keeps_comments_order_and_indentation() {
    let text = "// my servers\n{\n\t\"theme\": \"dark\",\n\t\"mcpServers\": {\n\t\t\"a\": {\"url\": \"http://a/\"}, // first\n\t\t\"b\": \
                {\"url\": \"http://b/\"} // last\n\t}\n}\n";
    let with = added(Client::Cursor, text);
    assert_eq!(
        with,
        "// my servers\n{\n\t\"theme\": \"dark\",\n\t\"mcpServers\": {\n\t\t\"a\": {\"url\": \"http://a/\"}, // first\n\t\t\"b\": {\"url\": \
         \"http://b/\"}, // last\n\t\t\"fanlight\": {\n\t\t\t\"url\": \"http://127.0.0.1:8080/mcp\"\n\t\t}\n\t}\n}\n"
    );
    assert_eq!(remove(Client::Cursor, &with, "fanlight").unwrap(), text);
}

#[test]
fn json_without_a_section_gets_one() {
    for text in [
        "{}",
        "{\n}\n",
        "{ // nothing\n}\n",
        "{\"mcpServers\": {}}",
        "{\"mcpServers\":null}",
        "{\"theme\": \"dark\"}",
    ] {
        added(Client::Gemini, text);
    }
    assert_eq!(
        added(Client::Gemini, "{\"theme\": \"dark\"}"),
        "{\n  \"theme\": \"dark\",\n  \"mcpServers\": {\n    \"fanlight\": {\n      \"httpUrl\": \
         \"http://127.0.0.1:8080/mcp\"\n    }\n  }\n}"
    );
}

#[test]
fn trailing_comma_and_windows_line_breaks_stay() {
    let text = "\u{feff}{\r\n  \"context_servers\": {\r\n    \"a\": { \"command\": \"x\" },\r\n  },\r\n}\r\n";
    let with = added(Client::Zed, text);
    assert!(
        with.starts_with('\u{feff}') && !with.replace("\r\n", "").contains('\n'),
        "{with:?}"
    );
    assert!(with.contains("},\r\n    \"fanlight\": {"), "{with:?}");
    assert_eq!(remove(Client::Zed, &with, "fanlight").unwrap(), text);
}

#[test]
fn entry_of_the_same_name_is_replaced() {
    let text = "{\n  \"mcpServers\": {\n    \"fanlight\": {\"url\": \"http://old/\"},\n    \"b\": {}\n  }\n}\n";
    let with = added(Client::LmStudio, text);
    assert!(
        with.contains("8080/mcp") && !with.contains("old") && with.contains("\"b\": {}"),
        "{with}"
    );
}

#[test]
fn second_version_of_opencode_has_a_deeper_section() {
    let text = "{\n  \"mcp\": {\n    \"servers\": {\n      \"a\": {\"type\": \"local\", \"command\": [\"x\"]}\n    }\n  }\n}\n";
    let with = added(Client::OpenCode, text);
    assert!(with.contains("\n      \"fanlight\": {\n"), "{with}");
    assert_eq!(remove(Client::OpenCode, &with, "fanlight").unwrap(), text);
}

#[test]
fn toml_gets_a_table_at_its_end() {
    let text = "# mine\nmodel = \"gpt-5\"   # best\n\n[mcp_servers.a]\ncommand = 'x'";
    let with = added(Client::Codex, text);
    assert!(with.starts_with(text), "{with}");
    assert!(
        with.ends_with("\n\n[mcp_servers.fanlight]\nurl = \"http://127.0.0.1:8080/mcp\"\n"),
        "{with}"
    );
    assert_eq!(
        remove(Client::Codex, &with, "fanlight").unwrap().trim_end(),
        text
    );
    let inline = "mcp_servers = { a = { command = \"x\" } }\n";
    assert_eq!(
        add(Client::Codex, inline, &entry(Client::Codex)),
        Err(EditError::ByHand)
    );
}

#[test]
fn yaml_gets_lines_in_front_of_the_first_entry() {
    let text = "GOOSE_MODEL: x # mine\nextensions:\n    developer:\n        type: builtin\n        enabled: true\nother: 1\n";
    let with = added(Client::Goose, text);
    assert!(
        with.contains("extensions:\n    fanlight:\n      enabled: true\n"),
        "{with}"
    );
    assert!(
        with.contains("    developer:\n        type: builtin\n"),
        "{with}"
    );
    assert_eq!(remove(Client::Goose, &with, "fanlight").unwrap(), text);
    for text in [
        "GOOSE_MODEL: x",
        "extensions: {}\nb: 1\n",
        "extensions:\nb: 1\n",
    ] {
        added(Client::Goose, text);
    }
}

#[test]
fn yaml_lists_get_an_item() {
    let text = "name: mine\nmcpServers:\n- name: a\n  command: x\nmodels: []\n";
    let with = added(Client::Continue, text);
    assert!(
        with.contains("mcpServers:\n- name: fanlight\n  type: streamable-http\n"),
        "{with}"
    );
    assert_eq!(remove(Client::Continue, &with, "fanlight").unwrap(), text);
    added(Client::Continue, "name: mine\nversion: 1.0.0\n");
    let flow = "mcpServers: [{name: a, command: x}]\n";
    assert_eq!(
        add(Client::Continue, flow, &entry(Client::Continue)),
        Err(EditError::ByHand)
    );
}

#[test]
fn broken_file_is_not_touched() {
    assert!(matches!(
        add(Client::Cursor, "{\n \"a\": \n", &entry(Client::Cursor)),
        Err(EditError::Malformed(_, _))
    ));
    assert_eq!(
        add(Client::Cursor, "[]", &entry(Client::Cursor)),
        Err(EditError::ByHand)
    );
    assert_eq!(
        add(
            Client::Cursor,
            "{\"mcpServers\": 1}",
            &entry(Client::Cursor)
        ),
        Err(EditError::ByHand)
    );
    assert_eq!(
        remove(Client::Cursor, "{\"mcpServers\": {}}", "fanlight"),
        Err(EditError::ByHand)
    );
    for repeated in [
        "{\"mcpServers\": {}, \"mcpServers\": {}}",
        "{\"a\": [{\"b\": 1, \"b\": 1}]}",
    ] {
        assert_eq!(
            add(Client::Cursor, repeated, &entry(Client::Cursor)),
            Err(EditError::ByHand)
        );
    }
    let repeated = "extensions:\n  a: {type: sse}\nextensions:\n  b: {type: sse}\n";
    assert_eq!(
        add(Client::Goose, repeated, &entry(Client::Goose)),
        Err(EditError::ByHand)
    );
}

#[test]
fn new_file_is_the_snippet() {
    for client in Client::ALL
        .into_iter()
        .filter(|client| client.speaks_http())
    {
        let text = added(client, "");
        assert_eq!(text, entry(client).snippet().text);
    }
}
