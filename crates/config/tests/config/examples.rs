//! Every file in config/ loads with the settings that it is meant to show.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fanlight_config::{Config, Loaded, Transport, load};

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config")
}

/// The names of all examples, sorted.
pub(crate) fn names() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.ends_with("schema.json"))
        .collect();
    names.sort();
    names
}

fn load_example(name: &str) -> Loaded {
    load(&folder().join(name), &|_| None).unwrap_or_else(|errors| panic!("{errors}"))
}

fn server_names(config: &Config) -> Vec<&str> {
    config
        .servers
        .iter()
        .map(|server| server.name.as_str())
        .collect()
}

#[test]
fn every_example_has_a_test_here() {
    let tested = [
        "fanlight.yaml",
        "http-and-stdio.yaml",
        "mcp.json",
        "minimal.yaml",
    ];
    assert_eq!(names(), tested);
}

#[test]
fn every_example_loads_without_any_variable_set() {
    for name in names() {
        let loaded = load_example(&name);
        assert!(!loaded.config.servers.is_empty(), "{name}");
        // The desktop client's file has one of the client's own keys, which causes a notice.
        let expected = usize::from(name == "mcp.json");
        assert_eq!(
            loaded.warnings.len(),
            expected,
            "{name}: {:?}",
            loaded.warnings
        );
    }
}

#[test]
fn desktop_file_is_read_without_changes() {
    let loaded = load_example("mcp.json");
    assert_eq!(loaded.path, folder().join("mcp.json"));
    assert_eq!(
        server_names(&loaded.config),
        ["filesystem", "memory", "time"]
    );
    let enabled: Vec<bool> = loaded.config.servers.iter().map(|s| s.enabled).collect();
    assert_eq!(enabled, [true, true, false]);
    let Transport::Stdio {
        command,
        args,
        env,
        cwd,
    } = &loaded.config.servers[1].transport
    else {
        panic!("not stdio");
    };
    assert_eq!(command, "npx");
    assert_eq!(args, &["-y", "@modelcontextprotocol/server-memory"]);
    assert_eq!(env[0].0, "MEMORY_FILE_PATH");
    assert_eq!(env[0].1.expose(), "memory.jsonl");
    assert_eq!(*cwd, None);
}

#[test]
fn minimal_file_has_the_defaults_and_one_server() {
    let config = load_example("minimal.yaml").config;
    let defaults = Config::default();
    assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.shown_path(), "/mcp");
    assert_eq!(
        config.admin.listen.as_ref().unwrap().to_string(),
        "127.0.0.1:8081"
    );
    assert_eq!(config.limits, defaults.limits);
    assert_eq!(config.timeouts, defaults.timeouts);
    assert_eq!(server_names(&config), ["everything"]);
    assert_eq!(config.servers[0].timeout, defaults.timeouts.call);
    assert_eq!(config.servers[0].concurrency, 256);
}

#[test]
fn full_file_repeats_the_defaults_and_sets_the_rest() {
    let config = load_example("fanlight.yaml").config;
    let defaults = Config::default();
    assert_eq!(config.listen, defaults.listen);
    assert_eq!(config.limits, defaults.limits);
    assert_eq!(config.timeouts, defaults.timeouts);
    assert_eq!(config.allowed_origins, ["https://app.example.com"]);
    assert_eq!(server_names(&config), ["files", "search", "notes"]);

    let files = &config.servers[0];
    assert_eq!(
        files.tools.allow.as_deref(),
        Some(&["read_*", "list_*", "search_files"].map(str::to_owned)[..])
    );
    assert_eq!(files.tools.deny, ["*_media_file"]);
    let Transport::Stdio { cwd, .. } = &files.transport else {
        panic!("not stdio");
    };
    assert_eq!(cwd.as_deref(), Some(folder().join(".").as_path()));

    let search = &config.servers[1];
    assert_eq!(search.prefix.as_deref(), Some("web_"));
    assert_eq!(search.timeout, Duration::from_secs(60));
    assert_eq!(search.concurrency, 32);
    assert!(!config.servers[2].enabled);
}

#[test]
fn http_and_stdio_servers_are_read_from_one_file() {
    let config = load_example("http-and-stdio.yaml").config;
    let Transport::Http { url, headers } = &config.servers[0].transport else {
        panic!("not HTTP");
    };
    assert_eq!(url, "http://127.0.0.1:9000/mcp");
    assert_eq!(headers[0].0, "authorization");
    assert_eq!(headers[0].1.expose(), "Bearer change-me");
    assert!(matches!(
        config.servers[1].transport,
        Transport::Stdio { .. }
    ));
    assert_eq!(config.servers[1].tools.deny, ["git_reset"]);
}
