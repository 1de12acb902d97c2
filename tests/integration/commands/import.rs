//! `fanlight import`: collects the servers of a user's clients in a configuration that is usable at
//! once.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{Ran, run_with};
use crate::harness::TempFile;

const CURSOR: &str = r#"{"mcpServers": {
  "git": {"command": "git-mcp", "args": ["--api-key", "s3cret-arg"], "env": {"LEVEL": "debug", "GIT_TOKEN": "s3cret-env"}},
  "search": {"url": "https://search.example/mcp", "headers": {"Authorization": "Bearer s3cret-header"}},
  "fanlight": {"url": "http://127.0.0.1:8080/mcp"},
  "broken": {"url": "ftp://h/"}}}"#;

const CODEX: &str = r#"model = "gpt-5"
[mcp_servers.vcs]
command = "git-mcp"
args = ["--api-key", "s3cret-arg"]
env = { LEVEL = "debug", GIT_TOKEN = "s3cret-env" }
[mcp_servers.search]
command = "search-mcp"
enabled = false
tool_timeout_sec = 20
"#;

const VS_CODE: &str = r#"{"inputs": [{"id": "key", "type": "promptString", "description": "Key"}],
  "servers": {"notes": {"command": "notes", "env": {"KEY": "${input:key}"}}}}"#;

/// The home folder of a user with clients; the current folder is `work` in it.
struct Home(TempFile);

impl Home {
    fn new(files: &[(&str, &str)]) -> Self {
        let home = TempFile::folder();
        for (name, text) in files.iter().chain(&[("work/empty", "")]) {
            let path = home.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Self(home)
    }

    fn of_clients() -> Self {
        Self::new(&[
            (".cursor/mcp.json", CURSOR),
            (".codex/config.toml", CODEX),
            ("work/.vscode/mcp.json", VS_CODE),
            (".gemini/settings.json", "{ nonsense"),
        ])
    }

    fn work(&self) -> std::path::PathBuf {
        self.0.path().join("work")
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.work().join(name)).unwrap()
    }

    async fn run(&self, arguments: &[&str]) -> Ran {
        let home = self.0.path().to_str().unwrap();
        let variables = [("HOME", home), ("XDG_CONFIG_HOME", ""), ("CODEX_HOME", "")];
        run_with(&self.work(), arguments, &variables).await
    }
}

#[tokio::test]
async fn servers_of_all_clients_are_taken_once_and_without_secrets() {
    let home = Home::of_clients();
    let ran = home.run(&["import"]).await;
    assert_eq!(ran.status, 0, "{}", ran.text());
    assert!(!ran.text().contains("s3cret"), "{}", ran.text());
    for expected in [
        "`fanlight` is Fanlight itself",
        "`broken` cannot be used: `url` is neither an http nor an https URL",
        "settings.json:1: malformed JSON",
        "(vcs)",
        "search-codex",
        "set the variable INPUT_KEY",
        "4 servers",
    ] {
        assert!(ran.out.contains(expected), "{expected}: {}", ran.text());
    }
    let (text, secrets) = (home.read("fanlight.yaml"), home.read("fanlight.env"));
    assert!(!text.contains("s3cret"), "{text}");
    for secret in [
        "GIT_API_KEY='s3cret-arg'",
        "GIT_TOKEN='s3cret-env'",
        "SEARCH_AUTHORIZATION='s3cret-header'",
    ] {
        assert!(secrets.contains(secret), "{secrets}");
    }
    for expected in [
        "envFile: fanlight.env",
        "Bearer ${SEARCH_AUTHORIZATION}",
        "LEVEL: debug",
        "KEY: \"${INPUT_KEY}\"",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert!(
        text.contains(
            "search-codex:\n    enabled: false\n    command: search-mcp\n    timeout: \"20s\""
        ),
        "{text}"
    );
    assert_eq!(mode(&home.work().join("fanlight.env")), 0o600);

    // The output is a valid configuration, apart from the user's variable that is missing.
    let valid = home.run(&["validate", "--allow-missing-env"]).await;
    assert_eq!(valid.status, 0, "{}", valid.text());
    let valid = home.run(&["validate"]).await;
    assert!(
        valid.status != 0 && valid.text().contains("INPUT_KEY"),
        "{}",
        valid.text()
    );
    assert!(!valid.text().contains("GIT_TOKEN"), "{}", valid.text());
}

#[cfg(unix)]
fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn existing_file_is_not_overwritten_without_force() {
    let home = Home::of_clients();
    fs::write(home.work().join("fanlight.yaml"), "mine").unwrap();
    let ran = home.run(&["import"]).await;
    assert_eq!(ran.status, 2, "{}", ran.text());
    assert!(
        ran.err.contains("--force") && ran.out.contains("git"),
        "{}",
        ran.text()
    );
    assert_eq!(home.read("fanlight.yaml"), "mine");
    assert!(!home.work().join("fanlight.env").exists());
    let shown = home
        .run(&["import", "--dry-run", "--output", "other.yaml"])
        .await;
    assert!(
        shown.status == 0 && shown.out.contains("git"),
        "{}",
        shown.text()
    );
    assert!(!home.work().join("other.yaml").exists());
    assert_eq!(home.run(&["import", "--force"]).await.status, 0);
    assert!(home.read("fanlight.yaml").contains("mcpServers:"));
}

#[tokio::test]
async fn secrets_are_kept_or_named_as_asked() {
    let home = Home::of_clients();
    let kept = home
        .run(&["import", "--from", "cursor", "--secrets", "keep"])
        .await;
    assert_eq!(kept.status, 0, "{}", kept.text());
    assert!(
        home.read("fanlight.yaml").contains("s3cret-env")
            && !home.work().join("fanlight.env").exists()
    );
    assert_eq!(mode(&home.work().join("fanlight.yaml")), 0o600);
    let printed = home
        .run(&["import", "--from", "cursor", "--output", "-"])
        .await;
    assert_eq!(printed.status, 0, "{}", printed.text());
    assert!(
        printed.out.contains("GIT_TOKEN: \"${GIT_TOKEN}\"") && !printed.text().contains("s3cret"),
        "{}",
        printed.text()
    );
    assert!(
        printed.err.contains("set the variable GIT_TOKEN"),
        "{}",
        printed.text()
    );
    let json = home.run(&["import", "--dry-run", "--json"]).await.json();
    let names: Vec<_> = json["servers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|server| server["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["git", "search", "notes", "search-codex"]);
    assert_eq!(
        (&json["written"], json["leftOut"].as_array().unwrap().len()),
        (&Value::Bool(false), 3)
    );
}

#[tokio::test]
async fn package_of_the_registry_is_taken_with_the_variables_it_wants() {
    let server = r#"{"$schema": "https://static.modelcontextprotocol.io/schemas/2025-10-17/server.schema.json",
      "name": "io.github.me/weather", "description": "Weather", "version": "1.0.0", "packages": [{"registryType": "npm",
      "identifier": "@me/weather", "version": "1.0.0", "transport": {"type": "stdio"},
      "environmentVariables": [{"name": "WEATHER_KEY", "description": "A key", "isRequired": true, "isSecret": true}]}]}"#;
    let home = Home::new(&[("work/server.json", server)]);
    let ran = home.run(&["import", "--from", "server.json"]).await;
    assert_eq!(ran.status, 0, "{}", ran.text());
    assert!(
        ran.out.contains("set the variable WEATHER_KEY: A key"),
        "{}",
        ran.text()
    );
    let text = home.read("fanlight.yaml");
    assert!(
        text.contains("weather:\n    command: npx\n    args: [\"-y\", \"@me/weather@1.0.0\"]"),
        "{text}"
    );
    let wrong = home.run(&["import", "--from", "nothing.json"]).await;
    assert!(
        wrong.status == 2 && wrong.err.contains("neither a file nor a known client"),
        "{}",
        wrong.text()
    );
    let none = home.run(&["import", "--output", "other.yaml"]).await;
    assert!(
        none.status == 1 && none.err.contains("no server was found"),
        "{}",
        none.text()
    );
}
