//! Checks that cargo commands in the documentation name existing packages, targets, profiles and
//! features.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::page::{Page, root};

/// The names that cargo commands may use.
struct Workspace {
    packages: BTreeSet<String>,
    /// Targets as (kind, name): (`test`, `integration`).
    targets: BTreeSet<(String, String)>,
    /// Features, with and without their package's name.
    features: BTreeSet<String>,
    profiles: BTreeSet<String>,
}

impl Workspace {
    /// The workspace as `cargo metadata` and the profiles of `Cargo.toml` describe it.
    fn read() -> Self {
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .args([
                "metadata",
                "--no-deps",
                "--offline",
                "--format-version",
                "1",
            ])
            .current_dir(root());
        let metadata: Value = serde_json::from_slice(&cargo.output().unwrap().stdout).unwrap();
        let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
        let own = manifest
            .lines()
            .filter_map(|line| line.strip_prefix("[profile.")?.strip_suffix(']'));
        let built_in = ["dev", "release", "test", "bench"].into_iter();
        let mut workspace = Self {
            packages: BTreeSet::new(),
            targets: BTreeSet::new(),
            features: BTreeSet::new(),
            profiles: own.chain(built_in).map(str::to_owned).collect(),
        };
        for package in metadata["packages"].as_array().unwrap() {
            let name = package["name"].as_str().unwrap();
            workspace.packages.insert(name.to_owned());
            for feature in package["features"].as_object().unwrap().keys() {
                workspace
                    .features
                    .extend([feature.clone(), format!("{name}/{feature}")]);
            }
            for target in package["targets"].as_array().unwrap() {
                let kind = target["kind"][0].as_str().unwrap();
                workspace
                    .targets
                    .insert((kind.to_owned(), target["name"].as_str().unwrap().to_owned()));
            }
        }
        workspace
    }

    /// The first name in a cargo command's options that the workspace does not have.
    fn missing_in(&self, command: &str) -> Option<String> {
        let words: Vec<&str> = command
            .split_whitespace()
            .take_while(|word| *word != "--")
            .collect();
        words.windows(2).find_map(|pair| {
            let (option, name) = (pair[0], pair[1]);
            let exists = match option {
                "-p" | "--package" => self.packages.contains(name),
                "--bin" | "--test" | "--example" | "--bench" => self
                    .targets
                    .contains(&(option.trim_start_matches('-').to_owned(), name.to_owned())),
                "--profile" => self.profiles.contains(name),
                "--features" => name
                    .split(',')
                    .all(|feature| self.features.contains(feature)),
                "--path" | "--manifest-path" => root().join(name).exists(),
                _ => true,
            };
            (!exists).then(|| format!("{option} {name}"))
        })
    }
}

/// The cargo commands in a line of a page: the text after the word, up to the end of the code or a
/// comment.
fn commands(line: &str) -> impl Iterator<Item = &str> {
    let starts = line.match_indices("cargo ").map(|(at, _)| at);
    let starts =
        starts.filter(|at| *at == 0 || [b' ', b'`', b'('].contains(&line.as_bytes()[at - 1]));
    starts.map(|at| line[at..].split(['`', '#', ';', '&']).next().unwrap())
}

#[test]
fn cargo_commands_name_existing_targets() {
    let workspace = Workspace::read();
    let is_exempt = |path: &Path| path.ends_with("CHANGELOG.md");
    let mut wrong = Vec::new();
    for page in Page::all().iter().filter(|page| !is_exempt(&page.path)) {
        for (index, line) in page.text().lines().enumerate() {
            let missing = commands(line).filter_map(|command| workspace.missing_in(command));
            wrong.extend(
                missing.map(|what| format!("{}:{}: no {what}", page.path.display(), index + 1)),
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn readme_has_its_two_commands() {
    let readme = Page::read(Path::new("README.md"));
    let has = |command: &str| {
        readme
            .text()
            .lines()
            .any(|line| line.split('#').next().unwrap().trim() == command)
    };
    assert!(has("cargo run") && has("cargo test --workspace"));
    // Without a package, `cargo run` runs the program of the package in `default-members`.
    let workspace = Workspace::read();
    assert!(
        workspace
            .targets
            .contains(&("bin".to_owned(), "fanlight".to_owned()))
    );
}

#[test]
fn missing_target_is_found() {
    let workspace = Workspace::read();
    let missing = |line: &str| commands(line).find_map(|command| workspace.missing_in(command));
    assert_eq!(
        missing("run `cargo test -p fanlight-tests --test docs`, then"),
        None
    );
    assert_eq!(
        missing("cargo test -p fanlight-nothing"),
        Some("-p fanlight-nothing".to_owned())
    );
    assert_eq!(
        missing("(`cargo test --test nothing`)"),
        Some("--test nothing".to_owned())
    );
    assert_eq!(
        missing("cargo build --profile ci -- --profile nothing"),
        None
    );
    assert_eq!(
        missing("cargo build --profile nothing"),
        Some("--profile nothing".to_owned())
    );
    assert_eq!(
        missing("cargo install --locked --path crates/nothing"),
        Some("--path crates/nothing".to_owned())
    );
}
