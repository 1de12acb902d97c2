//! Configurations of several files.

use std::fs;
use std::path::{Path, PathBuf};

use fanlight_config::{fingerprint, load_all};

use crate::with_server;

/// A folder for one test, which removes it at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let path =
            std::env::temp_dir().join(format!("fanlight-config-{}-{name}", std::process::id()));
        fs::create_dir_all(path.join("conf.d")).unwrap();
        for (file, text) in files {
            fs::write(path.join(file), text).unwrap();
        }
        Self(path)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }

    fn load(&self, files: &[&str]) -> Result<fanlight_config::Loaded, String> {
        let paths: Vec<_> = files.iter().map(|file| self.path(file)).collect();
        load_all(&paths, &|_| None).map_err(|errors| errors.render(false))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn server_with_user_variables_of_a_server_without_users_is_left_out() {
    let text = "mcpServers:\n  notes: {url: 'https://h/', auth: {type: user}}\n  open: {url: 'https://h/'}\n  good: {command: x, env: \
                {T: '${user:notes}'}}\n  bad: {command: x, env: {T: '${user:open}'}}\n  none: {command: x, env: {T: '${user:no}'}}\n";
    let folder = Folder::new("users", &[("main.yaml", text)]);
    let loaded = folder.load(&["main.yaml"]).unwrap();
    let [_, _, good, wrong @ ..] = &loaded.config.servers[..] else {
        panic!()
    };
    assert_eq!(good.user_env, [("T".to_owned(), "notes".to_owned())]);
    for server in wrong {
        let fanlight_config::Transport::Incomplete { why, .. } = &server.transport else {
            panic!("{}", server.name)
        };
        assert!(
            why.contains("there is no server") && server.user_env.is_empty(),
            "{why}"
        );
    }
}

const MAIN: &str = "timeouts: {call: 7s}\ninclude: [conf.d/*.yaml]\n";

#[test]
fn files_are_merged_by_the_names_of_servers() {
    let folder = Folder::new(
        "merged",
        &[
            ("main.yaml", MAIN),
            (
                "conf.d/2.yaml",
                "mcpServers:\n  b: {command: x, cwd: work}\n",
            ),
            ("conf.d/1.yaml", "mcpServers:\n  a: {url: 'http://h/'}\n"),
            ("conf.d/no.txt", "nonsense"),
            ("more.json", r#"{"servers":{"c":{"url":"http://h/"}}}"#),
        ],
    );
    let loaded = folder.load(&["main.yaml", "more.json"]).unwrap();
    let names: Vec<_> = loaded
        .config
        .servers
        .iter()
        .map(|server| server.name.as_str())
        .collect();
    assert_eq!(
        names,
        ["c", "a", "b"],
        "further files in their order, then included ones by name"
    );
    assert!(
        loaded
            .config
            .servers
            .iter()
            .all(|server| server.timeout.as_secs() == 7)
    );
    let fanlight_config::Transport::Stdio { cwd, .. } = &loaded.config.servers[2].transport else {
        panic!()
    };
    assert_eq!(
        cwd.as_deref(),
        Some(&*folder.path("conf.d/work")),
        "relative to its own file"
    );
    let files: Vec<_> = loaded.files.iter().map(|file| file.path.clone()).collect();
    let expected = [
        "main.yaml",
        "more.json",
        "conf.d/1.yaml",
        "conf.d/2.yaml",
        "conf.d",
    ];
    assert_eq!(files, expected.map(|file| folder.path(file)));
    assert!(
        loaded
            .files
            .iter()
            .all(|file| fingerprint(&file.path) == file.fingerprint)
    );
    fs::write(folder.path("conf.d/3.yaml"), "").unwrap();
    assert_ne!(
        fingerprint(&folder.path("conf.d")),
        loaded.files[4].fingerprint,
        "a new file"
    );
}

#[test]
fn name_in_two_files_is_an_error_with_both_lines() {
    let folder = Folder::new(
        "twice",
        &[
            (
                "main.yaml",
                "include: [conf.d/*.yaml]\nmcpServers:\n  a: {url: 'http://h/'}\n",
            ),
            (
                "conf.d/1.yaml",
                "\nmcpServers:\n  b: {url: 'http://h/'}\n  a: {url: 'http://h/'}\n",
            ),
            (
                "conf.d/2.yaml",
                "mcpServers:\n  b: {url: 'http://h/'}\nlisten: 127.0.0.1:1\n",
            ),
        ],
    );
    let errors = folder.load(&["main.yaml"]).unwrap_err();
    assert!(
        errors.contains("the server `a` is configured twice (first in "),
        "{errors}"
    );
    assert!(
        errors.contains("main.yaml on line 3)") && errors.contains("1.yaml:4:3"),
        "{errors}"
    );
    assert!(
        errors.contains("`listen` has no effect in a further config file"),
        "{errors}"
    );
    assert!(errors.contains("2.yaml:3:1"), "{errors}");
}

#[test]
fn missing_included_file_is_an_error_and_an_empty_pattern_is_none() {
    let text =
        |include: &str| format!("include: [{include}]\nmcpServers:\n  a: {{url: 'http://h/'}}\n");
    let folder = Folder::new(
        "missing",
        &[("a.yaml", &text("no.yaml")), ("b.yaml", &text("no*.yaml"))],
    );
    assert!(
        folder
            .load(&["a.yaml"])
            .unwrap_err()
            .contains("there is no such file")
    );
    assert_eq!(folder.load(&["b.yaml"]).unwrap().config.servers.len(), 1);
    assert!(load_all(&[], &|_| None).is_err());
    assert_eq!(fingerprint(Path::new("/nowhere/at/all")), None);
}

#[test]
fn missing_variables_are_told_from_other_errors() {
    let load = |text: &str| {
        fanlight_config::parse(text, Path::new("f.yaml"), &|_| None)
            .unwrap_err()
            .without_missing_variables()
    };
    assert!(load("mcpServers: {a: {url: '${URL}', headers: {x: '${TOKEN}'}}}").is_none());
    let left = load("mcpServers: {a: {url: '${URL}', nonsense: 1}}").unwrap();
    assert_eq!(left.problems().len(), 1);
}

#[test]
fn role_of_a_key_that_is_not_in_the_file_is_a_warning() {
    let text = with_server(
        "auth: {keys: {file: keys.yaml}}\nadmin: {roles: {operator: ['user:key#ci', 'user:key#gone', 'user:key#part']}}",
    );
    let digest = "0".repeat(64);
    let keys = format!(
        "keys:\n  - {{name: ci, sha256: \"{digest}\"}}\n  - {{name: part, sha256: \"{}\", endpoints: [/mcp]}}\n",
        digest.replace('0', "1")
    );
    let folder = Folder::new("roles", &[("main.yaml", &text), ("keys.yaml", &keys)]);
    let loaded = folder.load(&["main.yaml"]).unwrap();
    let warnings: Vec<_> = loaded.warnings.iter().map(|one| one.message()).collect();
    assert_eq!(
        warnings,
        [
            "no key for all endpoints is called `gone`, which has the role `operator`",
            "no key for all endpoints is called `part`, which has the role `operator`",
        ]
    );
}
