//! Tests of the config crate through its public functions, as one binary.

// A test fails by panicking, in its helper functions too.
#![allow(clippy::unwrap_used, clippy::panic)]

mod auth;
mod clients;
mod endpoints;
mod errors;
mod examples;
mod files;
mod keys;
mod operators;
mod properties;
mod replicas;
mod rewriting;
mod schema;
mod secrets;
mod server_auth;
mod syntax;
mod values;
mod versions;

use std::path::Path;

use fanlight_config::{Config, Loaded, Problem, parse};

/// The variables of the tests.
fn env(name: &str) -> Option<String> {
    match name {
        "HOST" => Some("example.com".to_owned()),
        "TOKEN" => Some("s3cret-token".to_owned()),
        "T" => Some("5s".to_owned()),
        "N" => Some("7".to_owned()),
        "YES" => Some("true".to_owned()),
        "BAD" => Some("s3cret-bad".to_owned()),
        "EMPTY" => Some(String::new()),
        _ => None,
    }
}

fn parse_yaml(text: &str) -> Result<Loaded, fanlight_config::ConfigErrors> {
    parse(text, Path::new("folder/f.yaml"), &env)
}

fn parse_json(text: &str) -> Result<Loaded, fanlight_config::ConfigErrors> {
    parse(text, Path::new("folder/fanlight.json"), &env)
}

/// The config of a text that must be good and without warnings.
fn good(text: &str) -> Config {
    let loaded = parse_yaml(text).unwrap();
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    loaded.config
}

/// Each problem of a bad text as `line:column message`.
fn errors(text: &str) -> Vec<String> {
    let errors = parse_yaml(text).unwrap_err();
    errors.problems().iter().map(brief).collect()
}

/// Each warning of a good text as `line:column message`.
fn warnings(text: &str) -> Vec<String> {
    parse_yaml(text)
        .unwrap()
        .warnings
        .iter()
        .map(brief)
        .collect()
}

fn brief(problem: &Problem) -> String {
    let at = problem.position().unwrap();
    format!("{}:{} {}", at.line, at.column, problem.message())
}

/// A file with one good server after the given top-level lines.
fn with_server(lines: &str) -> String {
    format!("{lines}\nmcpServers: {{a: {{command: run}}}}\n")
}

/// A file whose one server has the given lines, from line 3 on, in column 5.
fn server(lines: &str) -> String {
    let mut text = "mcpServers:\n  a:\n".to_owned();
    for line in lines.lines() {
        text.push_str("    ");
        text.push_str(line);
        text.push('\n');
    }
    text
}
