//! Canaries and mirrors: the entries that a server can name, and options without effect on them.

use fanlight_config::Share;

use crate::{errors, good, warnings};

const TWO: &str = "  v2: {url: 'http://127.0.0.1:2/mcp'}\n";

fn with(options: &str, more: &str) -> String {
    format!("mcpServers:\n  a:\n    url: http://127.0.0.1:1/mcp\n    {options}\n{TWO}{more}")
}

#[test]
fn versions_are_other_entries_which_clients_are_not_shown() {
    let config = good(&with("canary: {server: v2, share: 0.25}", ""));
    let canary = config.servers[0].canary.as_ref().unwrap();
    assert_eq!(canary.server.as_str(), "v2");
    assert!((canary.share.as_f64() - 0.25).abs() < 1e-9);
    assert_eq!(
        config
            .version_of("v2")
            .map(|(option, of)| (option, of.name.as_str())),
        Some(("canary", "a"))
    );
    assert_eq!(
        config
            .servers_of_clients()
            .map(|server| server.name.as_str())
            .collect::<Vec<_>>(),
        ["a"]
    );
    let config = good(&with("mirror: {server: v2, share: 1}", ""));
    assert_eq!(config.servers[0].mirror.as_ref().unwrap().share, Share::ALL);
    // One entry can be both.
    good(&with("canary: {server: v2}\n    mirror: {server: v2}", ""));
}

#[test]
fn versions_that_cannot_be_are_refused_where_they_are_named() {
    for (options, error) in [
        (
            "mirror: {share: 0.5}",
            "4:13 the `mirror` of `a` has no `server`",
        ),
        ("canary: {server: v3}", "4:22 no server is called `v3`"),
        ("canary: {server: a}", "4:22 `a` is its own `canary`"),
        (
            "mirror: {server: v2, share: 1.5}",
            "4:33 `1.5` is not a share",
        ),
        (
            "canary: {server: v2, share: 5%}",
            "4:33 `5%` is not a share",
        ),
    ] {
        assert_eq!(errors(&with(options, "")), [error], "{options}");
    }
    let chain = "  b: {url: 'http://127.0.0.1:3/mcp', canary: {server: a}}\n";
    assert_eq!(
        errors(&with("mirror: {server: v2}", chain)),
        ["6:55 `a` is the `canary` of `b` and has a `mirror` of its own"]
    );
}

#[test]
fn endpoint_cannot_show_a_version() {
    let text = with(
        "canary: {server: v2}",
        "endpoints:\n  /mcp: {servers: [a, v2]}\n",
    );
    assert_eq!(
        errors(&text),
        ["7:19 `v2` is the `canary` of `a`, which clients are not shown"]
    );
}

#[test]
fn options_about_clients_have_no_effect_on_other_versions() {
    let text = with(
        "mirror: {server: v3}",
        "  v3:\n    url: http://127.0.0.1:3/mcp\n    tools: {deny: [x]}\n    timeout: 5s\n",
    );
    assert_eq!(
        warnings(&text),
        ["8:12 `tools` has no effect here: `v3` is the `mirror` of `a`"]
    );
}
