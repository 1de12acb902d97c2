//! `fanlight validate`: checks the configuration files without connecting to a server.

use std::path::PathBuf;
use std::time::SystemTime;

use fanlight_config::{Environment, Problem, Server, Severity, Transport, load_all, load_usable};
use fanlight_protocol::visible::plain;
use itertools::Itertools as _;
use serde_json::{Value, json};

use super::check::authentication;
use crate::cli::{CommonArgs, ValidateArgs};
use crate::flagged::{self, Flagged, find_flagged};
use crate::known_lists::KnownLists;
use crate::{Result, configuration, counted, listeners, out, pins, policy, say, unmatched};

/// Fails if the configuration cannot be used. `--allow-missing-env` skips checks that depend on
/// unset variables.
pub fn validate(args: &ValidateArgs, common: &CommonArgs) -> Result {
    let paths = configuration::paths(common)
        .ok_or_else(|| usage!("there is no configuration to validate: name it with --config"))?;
    let names = paths
        .iter()
        .map(|path| path.display().to_string())
        .join(", ");
    let loaded = match load_all(&paths, &configuration::variable) {
        Ok(loaded) => loaded,
        // The value of a missing variable is unknown: judge only what does not depend on it.
        Err(errors) => match if args.allow_missing_env {
            errors.without_missing_variables()
        } else {
            Some(errors)
        } {
            None if args.json => {
                out::pretty(&json!({ "valid": true, "problems": [], "missingVariables": true }));
                return Ok(());
            }
            None => {
                say!("{names}: valid, but for variables that are not set here");
                return Ok(());
            }
            Some(errors) => {
                if args.json {
                    let problems = errors.problems().iter().map(entry).collect_vec();
                    out::pretty(&json!({ "valid": false, "problems": problems }));
                } else {
                    say_of_usable(&paths);
                }
                return Err(errors.into());
            }
        },
    };
    let config = &loaded.config;
    let mut refused = listeners::refusal_reasons(config);
    refused.extend(policy::load(config, None).err());
    refused.extend(pins::check(config).err());
    let mut warnings = authentication::warnings(config, SystemTime::now());
    let known = KnownLists::kept_for(config, &paths);
    warnings.extend(unmatched::warnings(config, &known));
    warnings.extend(
        find_flagged(&flagged::read_known(&known))
            .iter()
            .map(Flagged::line),
    );
    let servers = config.servers.len();
    let enabled = config
        .servers
        .iter()
        .filter(|server| server.enabled)
        .count();
    if args.json {
        let plain = |severity: &'static str| move |message: &String| json!({ "severity": severity, "message": message });
        let problems = loaded
            .warnings
            .iter()
            .map(entry)
            .chain(warnings.iter().map(plain("warning")));
        let problems: Vec<Value> = problems.chain(refused.iter().map(plain("error"))).collect();
        out::pretty(
            &json!({ "valid": refused.is_empty(), "problems": problems, "servers": servers, "enabled": enabled }),
        );
    } else {
        for problem in &loaded.warnings {
            say!(
                "{}",
                problem.render(problem.file(), false).trim_end_matches('\n')
            );
        }
        warnings
            .iter()
            .for_each(|warning| say!("warning: {warning}"));
    }
    if !refused.is_empty() {
        return Err(usage!(
            "{names}: `fanlight run` refuses this configuration: {}",
            refused.join("\n")
        ));
    }
    if !args.json {
        say!(
            "{names}: valid, {}, {enabled} enabled",
            counted(servers, "server")
        );
    }
    Ok(())
}

/// Prints how `fanlight run` would use files that only lack values.
fn say_of_usable(paths: &[PathBuf]) {
    let environment = Environment::with_unread_secrets(&configuration::variable);
    let Ok(loaded) = load_usable(paths, environment) else {
        return;
    };
    let is_incomplete = |server: &&Server| {
        server.enabled && matches!(server.transport, Transport::Incomplete { .. })
    };
    let names = loaded
        .config
        .servers
        .iter()
        .filter(is_incomplete)
        .map(|server| plain(&server.name, 60))
        .join(", ");
    say!(
        "`fanlight run` leaves out {names}, whose variables are not set, and uses the other servers:\n"
    );
}

fn entry(problem: &Problem) -> Value {
    let position = problem.position();
    json!({
        "severity": match problem.severity() { Severity::Error => "error", Severity::Warning => "warning" },
        "file": problem.file().display().to_string(),
        "line": position.map(|position| position.line),
        "column": position.map(|position| position.column),
        "message": problem.message(),
        "help": problem.help(),
    })
}
