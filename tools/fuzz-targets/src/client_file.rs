//! Configuration files of clients. No text panics or reveals a secret; adding or removing an entry
//! leaves the other servers unchanged. The first byte chooses the client.

use std::path::PathBuf;

use fanlight_config::client_files::{
    Client, Credential, Entry, Places, Reach, System, add, find_entry, remove,
};

use crate::cost::{Cost, Linear, bounded};

/// The value of every environment variable.
const SECRET: &str = "s3cret-0123456789abcdef";
/// The name of the added entry.
const NAME: &str = "fanlight";

/// The cost of reading a text as a configuration, and several times with each change. The fixed
/// part is a configuration's, and many short lines are many values.
const COST: Cost = Cost {
    allocations: Linear(800_000, 512),
    bytes: Linear(256 << 20, 64 << 10),
    milliseconds: 500,
};

pub(crate) fn check(data: &[u8]) {
    let Some((first, text)) = data.split_first() else {
        return;
    };
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    let client = Client::ALL[usize::from(*first) % Client::ALL.len()];
    bounded(data.len(), COST, || {
        read(client, text);
        edit(client, text);
    });
}

/// Reads the text as Fanlight's configuration.
fn read(client: Client, text: &str) {
    let environment = |_: &str| Some(SECRET.to_owned());
    let shown = match fanlight_config::parse(text, &path(client), &environment) {
        Ok(loaded) => format!("{:?}", loaded.warnings),
        Err(errors) => errors.to_string(),
    };
    assert!(
        text.contains(SECRET) || !shown.contains(SECRET),
        "a secret is shown"
    );
}

/// The file of the client with a user's servers.
fn path(client: Client) -> PathBuf {
    let home = |name: &str| (name == "HOME").then(|| "/home/user".to_owned());
    let places = Places::new(System::Linux, &home).expect("a home");
    places.user_files(client).swap_remove(0)
}

/// Adds an entry to the text twice, and removes it again.
fn edit(client: Client, text: &str) {
    let reach = match client.speaks_http() {
        true => Reach::Http {
            url: "http://127.0.0.1:8080/mcp".to_owned(),
            credential: Credential::None,
        },
        false => Reach::Stdio {
            command: "fanlight".to_owned(),
            args: vec!["stdio".to_owned()],
        },
    };
    let entry = Entry::new(client, NAME, reach);
    let in_text =
        |text: &str| find_entry(client, text, NAME).expect("a text that was changed can be read");
    let Ok(with) = add(client, text, &entry) else {
        return;
    };
    assert_eq!(
        in_text(&with).as_ref(),
        Some(&entry.value),
        "the entry is not in the text: {with}"
    );
    assert_eq!(
        add(client, &with, &entry).as_ref(),
        Ok(&with),
        "the same entry changes the text again"
    );
    if let Ok(without) = remove(client, &with, NAME) {
        assert_eq!(
            in_text(&without),
            None::<serde_json::Value>,
            "the entry is still in the text: {without}"
        );
    }
}
